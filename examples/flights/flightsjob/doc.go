// Package flightsjob is the example's jobs and all that is needed to check their answers: the records, the jobs, the data,
// an independent computation of the answer in plain Go, and comparisons of what a run put out.
//
// Start reading at [DailyJob]; [SlidingJob] and [SessionsJob] differ in their windows.
package flightsjob
