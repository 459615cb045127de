package s3

import (
	"context"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cairnstream/cairn/blob"
)

var _ blob.Uploads = (*Store)(nil)

// uploadsPage is how many uploads are asked for at a time: as many as S3 gives. Tests ask for fewer.
var uploadsPage = 1000

// Uploads implements blob.Uploads.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[blob.Upload, error] {
	return func(yield func(blob.Upload, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(blob.Upload{}, s.fail("list-uploads", prefix, err))
			return
		}
		if !begins(prefix) {
			return
		}
		key, id := "", ""
		for {
			var page minio.ListMultipartUploadsResult
			err := s.retry(ctx, "list-uploads", prefix, func() (err error) {
				page, err = s.core.ListMultipartUploads(ctx, s.location.Bucket, s.location.Key(prefix), key, id, "", uploadsPage)
				return err
			})
			if isCode(err, "InvalidArgument") && id != "" {
				// Some gateways do not go on within a key. Others of that key than the page had are seen by a later list.
				id = ""
				continue
			}
			if err != nil {
				yield(blob.Upload{}, err)
				return
			}
			for _, u := range page.Uploads {
				own := s.location.Relative(u.Key)
				if !strings.HasPrefix(u.Key, s.location.Key(prefix)) || blob.CheckKey(own) != nil {
					continue
				}
				if !yield(blob.Upload{Key: own, ID: u.UploadID, Begun: u.Initiated}, nil) {
					return
				}
			}
			if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
				return
			}
			key, id = page.NextKeyMarker, page.NextUploadIDMarker
		}
	}
}

// AbortUpload implements blob.Uploads.
func (s *Store) AbortUpload(ctx context.Context, u blob.Upload) error {
	if err := s.check(ctx, "abort-upload", u.Key); err != nil {
		return err
	}
	err := s.retry(ctx, "abort-upload", u.Key, func() error {
		return s.core.AbortMultipartUpload(ctx, s.location.Bucket, s.location.Key(u.Key), u.ID)
	})
	if isCode(err, "NoSuchUpload") {
		return nil
	}
	return err
}
