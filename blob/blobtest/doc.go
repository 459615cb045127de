// Package blobtest is the specification of blob.Store as a test: every implementation passes [Run].
package blobtest
