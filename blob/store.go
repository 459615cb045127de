package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"time"
)

// Store holds objects by key.
//
// Goroutines: every method may be called from any goroutine, also at the same time for the same key. Every
// method may block on a network or a disk, so it is never called by the goroutine that owns a subtask or a job;
// all of them return soon after ctx is done.
//
// Bytes: a body that is passed in is only read, and only until the call returns. A reader that is handed out
// belongs to the caller, who closes it; ctx governs it until then.
//
// Visibility: an object appears whole or not at all. A Get, Stat or List that starts after a Put returned
// without an error sees the object; one that runs at the same time sees the old object or the new one, never
// a part or a mixture. What a Put acknowledged survives a crash of the process and, where the medium can do it,
// of the machine.
//
// Errors are of type *Error and name operation and object. After an error of Put, PutIfAbsent or Delete the
// outcome is unknown unless the error is ErrExists: the object may be there, whole, or not. All methods but
// PutIfAbsent may be repeated with the same arguments; implementations repeat transient errors themselves for a
// bounded time, so that an error that reaches the caller has outlived that.
//
// Keys: see CheckKey. A key that breaks the rules is refused before anything is done.
type Store interface {
	// Put stores exactly size bytes of body under key and replaces what was there. The size must be known: a
	// body with fewer bytes is an error that wraps io.ErrUnexpectedEOF and leaves the former object, if any; of a
	// longer body the rest is not read. A body that is an io.ReaderAt and an io.Seeker too (bytes.Reader,
	// os.File, io.SectionReader) is read from its current position without a copy in memory and may be read by
	// several goroutines; its position afterwards is unspecified. Any other body is buffered piece by piece.
	Put(ctx context.Context, key string, body io.Reader, size int64) error

	// PutIfAbsent stores data under key if there is no such object, and is ErrExists otherwise. Of any number of
	// concurrent calls for a key that does not exist exactly one succeeds. A repetition after an error with
	// unknown outcome can meet the object of the first call: the caller then compares contents. It is for small
	// objects: data is sent as one request.
	PutIfAbsent(ctx context.Context, key string, data []byte) error

	// Get opens the object for sequential reading. The reader fails with an error that wraps io.ErrUnexpectedEOF if
	// it cannot deliver Info.Size bytes, and never mixes two versions of an object. ErrNotExist if there is none.
	Get(ctx context.Context, key string) (io.ReadCloser, Info, error)

	// GetRange opens n bytes from offset off. The whole range must lie inside the object, else ErrRange; n may
	// be 0.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

	// Stat describes the object without reading it. ErrNotExist if there is none.
	Stat(ctx context.Context, key string) (Info, error)

	// Delete removes the objects. A key without an object is not an error. It goes on after a failure; its error
	// then names what failed, and the whole call may be repeated.
	Delete(ctx context.Context, keys ...string) error

	// List yields the objects whose key begins with prefix (any string, not only whole segments; empty: all), in
	// the byte order of their keys. An error ends it and is yielded with a zero Info. Objects that are written or
	// deleted meanwhile may be seen or not; others are seen exactly once.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the store's clock, at a resolution of a second or better; for people and as a margin only
}

func (i Info) String() string { return fmt.Sprintf("%s (%d bytes)", i.Key, i.Size) }

// PutBytes stores data under key.
func PutBytes(ctx context.Context, s Store, key string, data []byte) error {
	return s.Put(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// ReadAll reads the object whole, and refuses one of more than limit bytes before it reads any of it. The limit
// guards the memory of a process against an object that is not what it should be.
func ReadAll(ctx context.Context, s Store, key string, limit int64) ([]byte, error) {
	r, info, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if info.Size > limit {
		return nil, &Error{Op: "get", Object: key, Err: fmt.Errorf("%w: object has %d bytes, limit is %d", ErrTooLarge, info.Size, limit)}
	}
	data := make([]byte, info.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, WrapError("get", key, err)
	}
	return data, nil
}
