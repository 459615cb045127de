// Package dedup keeps one record of each key: the first, or the best so far by an order of the user's.
package dedup
