// Package operator is what runs inside a subtask: the contract between the task loop and the
// operators of a chain (Operator, Context), the contracts that connectors implement (Source,
// Sink), and the built-in operators.
//
// The subtask's goroutine calls everything here unless a comment says otherwise. Batches move
// through a chain by calls: an operator gets a batch from its upstream's Emit, and calls Emit on
// its own output. Records are typed inside an operator; the type is erased where a batch passes
// from one to the next, once per batch.
package operator
