// Package exchange is how batches and control events get from one subtask to the next.
//
// A channel joins one sending to one receiving subtask. Its sending end is an Out, which the
// sender's goroutine owns; its receiving end is a Port of the receiver's Gate. exchange/inproc
// joins the two in one process and hands batches over as they are, exchange/grpc carries them as
// frames between processes. Flow control is per channel: a sender waits for room on its own
// channel only, and control events need no room.
package exchange
