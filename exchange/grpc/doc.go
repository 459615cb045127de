// Package grpc carries the channels of jobs between processes. Start reading at Dialer for the
// sending side and Server for the receiving one; FORMAT.md has the layout of the messages.
//
// All channels from one process to another that belong to one run of a job share one gRPC stream, a
// link. Each channel has a window of bytes of its own, which the receiver gives out as credit when
// the frames are taken from its gate and decoded. So what arrives always has a place, the link's
// receiver never waits for a subtask, and a slow subtask stops its own channels only. Control events
// need no credit and keep their order because a sender that waits for credit sends nothing else.
//
// Goroutines. A link has two on the sending side: one writes what the channels have queued, as many
// entries to a message as there are, and one reads the replies. On the receiving side the handler
// of the stream writes replies and a second one delivers to gates. A subtask's goroutine encodes in
// Send and decodes in Gate.Poll; it never does I/O and never waits for the network, but for credit.
package grpc
