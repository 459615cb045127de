// Package sealed encrypts the objects of a store before they leave the process, and verifies them when they come back. Start
// reading at New; FORMAT.md has the bytes.
//
// What a sealed store hides is the content of objects. Their keys, their sizes to within a few bytes and their times stay visible.
package sealed
