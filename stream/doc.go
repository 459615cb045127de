// Package stream is the typed API in which programs describe jobs.
//
// A program is a function of a Job. It is called where the job is submitted and again on every
// TaskManager that runs a part of it, and must build the same graph each time: it decides by its
// arguments alone, not by clocks, files or random numbers. Job and the streams are descriptions;
// nothing runs while they are put together. What is wrong is collected and reported at once.
package stream
