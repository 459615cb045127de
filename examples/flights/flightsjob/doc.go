// Package flightsjob is the example's job and all that is needed to check its answer: the records, the job, the data,
// an independent computation of the answer in plain Go, and comparisons of what a run put out.
//
// Start reading at [DailyJob].
package flightsjob
