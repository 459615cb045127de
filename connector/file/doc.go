// Package file reads files and writes files: [Source] reads newline-delimited JSON and CSV, plain or compressed, side
// by side in ranges of bytes; [Sink] writes parts that become visible exactly once, with the checkpoint that holds them.
//
// All processes of a job see the files under the same paths, on one file system that they share (or they run on one
// machine). The sink checks it when the job starts.
//
// Start reading at [Source.Splits], reader.Read, and at [Sink.Writer], writer.Prepare, committer.Commit. FORMAT.md
// describes what goes into checkpoints and the names of parts. The package starts no goroutines.
package file
