package blob

import (
	"context"
	"iter"
	"time"
)

// Upload is an upload in parts that was begun and neither completed nor taken back: its process has died, or is at it. Its
// parts take room, and are in no list of objects.
type Upload struct {
	Key   string
	ID    string
	Begun time.Time // By the store's clock.
}

// Uploads is what a Store has beside its contract where uploads in parts can be left behind. UploadsOf finds it. Goroutines,
// keys and errors are as in Store; operations are named list-uploads and abort-upload.
type Uploads interface {
	// Uploads yields those of objects whose key begins with prefix, by key. An error ends it.
	Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error]
	// AbortUpload takes an upload back and frees its parts. One that is there no more is not an error: it was completed, and
	// then the object is left alone, or taken back.
	AbortUpload(ctx context.Context, u Upload) error
}

// UploadsOf finds the Uploads of a store, also below others that have an Unwrap; false if nothing is ever left behind there.
func UploadsOf(s Store) (Uploads, bool) {
	for {
		if u, ok := s.(Uploads); ok {
			return u, true
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return nil, false
		}
		s = w.Unwrap()
	}
}
