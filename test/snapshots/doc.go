// Package snapshots makes checkpoints and savepoints for tests, as each state backend writes them, and every way to damage
// one: an object of each kind that is gone, cut short, changed in a bit, or another one's.
//
// Start reading at Whole, which gives the snapshots, and Damages, which lists what can be done to one.
package snapshots
