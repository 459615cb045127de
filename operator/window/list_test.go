package window

import (
	"reflect"
	"testing"

	"github.com/cairnstream/cairn/codec"
)

func TestListOfOlderItems(t *testing.T) {
	old, now := List(codec.Int32()), List(codec.Int64())
	v := []int32{1, -2}
	src, err := old.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.Evolve(now, old.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	if n, err := c.Decode(src, &got); err != nil || n != len(src) || !reflect.DeepEqual(got, []int64{1, -2}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []codec.Schema{List(codec.String()).Schema(), codec.Int32().Schema()} {
		if _, err := codec.Evolve(now, s); err == nil {
			t.Errorf("%v is read as %v", s, now.Schema())
		}
	}
}
