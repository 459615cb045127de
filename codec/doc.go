// Package codec turns records, keys and state into bytes and back.
//
// Codec (codec.go) is the contract. Default picks an implementation by type: the scalar codecs
// (scalar.go) for numbers, strings, bytes and times, else Struct (struct.go), which compiles a Go
// type once into a flat program (compile.go) that it then runs over memory (program.go). JSON and
// Proto carry types that have an encoding of their own. FORMAT.md describes every encoding byte
// by byte.
//
// A Schema says what encoded bytes mean, in text that outlives the Go type: ParseSchema and
// Type.Decode (shape.go, dynamic.go) read values without it. CheckKey (key.go) and NewHasher
// (hash.go) are for keys.
//
// The package is pure: no clock, no goroutine, no I/O.
package codec
