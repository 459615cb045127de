// Package metatest is the specification of metastore.Store as a test: every implementation passes [Run].
package metatest
