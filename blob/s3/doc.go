// Package s3 is a blob.Store on S3-compatible object storage. It serves
// `s3://BUCKET/PREFIX?endpoint=URL&region=R&path-style=true`; keys come from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, the shared credentials file, or the machine's IAM role.
//
// Start reading at [Open] and [Options]. One request is one call of the client library, without its own retries:
// those are in retry.go, where they honour the caller's context and can tell whether an earlier try took effect.
// Objects above a limit go up in parts (multipart.go), several at a time, out of a bounded set of buffers that all
// uploads of the store share. Reading goes on after a broken connection where it stopped (read.go).
//
// Goroutines: while a Put of a large object runs, one per part that is under way; the Put waits for them. The HTTP
// transport keeps some for idle connections until Close.
package s3
