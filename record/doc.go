// Package record holds what moves through a job: batches of typed records, the watermarks inside
// them, and the control events between them.
//
// A Batch has exactly one owner. Whoever receives one may change it in place, hands it on, or
// calls Release; after either it must not touch it again. Builds with the tag cairndebug overwrite
// released batches, so that a breach shows at once.
package record
