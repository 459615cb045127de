package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	stdflag "flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

var update = stdflag.Bool("update", false, "write testdata/golden.txt anew")

// goldenCase is one value whose bytes are on record.
type goldenCase struct {
	name   string
	schema Schema
	bytes  []byte
	check  func(golden []byte) error
}

func golden[T any](name string, c Codec[T], v T) goldenCase {
	b, err := c.Append(nil, &v)
	if err != nil {
		panic(err)
	}
	return goldenCase{name, c.Schema(), b, func(golden []byte) error {
		if !bytes.Equal(b, golden) {
			return fmt.Errorf("is encoded as %x, on record are %x", b, golden)
		}
		var got T
		n, err := c.Decode(golden, &got)
		if err != nil || n != len(golden) {
			return fmt.Errorf("took %d of %d bytes: %w", n, len(golden), err)
		}
		if _, isProto := any(&got).(interface{ ProtoMessage() }); !isProto && !reflect.DeepEqual(got, v) {
			return fmt.Errorf("decoded as %+v, want %+v", got, v)
		}
		return nil
	}}
}

// The bytes on record are what released versions wrote. A later version must still read them.
func TestGolden(t *testing.T) {
	wrapped := golden("proto", Proto[wrapperspb.StringValue](), wrapperspb.StringValue{Value: "hé"})
	cases := []goldenCase{
		golden("int64", Int64(), -2),
		golden("uint64", Uint64(), 1<<63),
		golden("int32", Int32(), -2),
		golden("uint16", Uint16(), 0x0102),
		golden("int8", Int8(), -1),
		golden("float64", Float64(), 1.5),
		golden("float32", Float32(), -0.5),
		golden("bool", Bool(), true),
		golden("string", String(), "hé"),
		golden("string-128", String(), strings.Repeat("x", 128)),
		golden("bytes", Bytes(), []byte{0, 1}),
		golden("bytes-empty", Bytes(), []byte{}),
		golden("bytes-nil", Bytes(), nil),
		golden("time", Time(), time.Unix(1700000000, 5).UTC()),
		golden("time-zero", Time(), time.Time{}),
		golden("json", JSON[inner](), inner{1, "<"}),
		wrapped,
		golden("struct-dense", MustStruct[tick](), tick{1, 2, 3}),
		golden("struct-strings", MustStruct[order](), order{
			ID: 7, Customer: "c", At: time.Unix(5, 6).UTC(), Lines: []line{{"x", 1, 0.5}, {"", -1, 0}},
		}),
		golden("struct-everything", MustStruct[everything](), everythingSample()),
		golden("struct-zero", MustStruct[everything](), everything{}),
		golden("map", MustStruct[map[string]int16](), map[string]int16{"b": 2, "a": 1, "aa": 3}),
	}
	const path = "testdata/golden.txt"
	if *update {
		var out strings.Builder
		out.WriteString("# name, schema, bytes of version 1 encodings; tabs between them. Lines are added, never changed.\n")
		for _, c := range cases {
			fmt.Fprintf(&out, "%s\t%s\t%x\n", c.name, c.schema, c.bytes)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	record := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(parts) == 3 {
			record[parts[0]] = parts[1:]
		}
	}
	if len(record) != len(cases) {
		t.Errorf("%d cases, %d on record", len(cases), len(record))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			on := record[c.name]
			if on == nil {
				t.Fatal("not on record")
			}
			b, err := hex.DecodeString(on[1])
			if err != nil {
				t.Fatal(err)
			}
			if err := c.check(b); err != nil {
				t.Error(err)
			}
			s, err := ParseSchema(on[0])
			if err != nil {
				t.Fatal(err)
			}
			if s != c.schema && s.Codec != "proto" { // Descriptors of imports may grow.
				t.Errorf("schema %s, on record is %s", c.schema, s)
			}
			d, err := s.Dynamic()
			if err != nil {
				t.Fatal(err)
			}
			v, n, err := d(b)
			if err != nil || n != len(b) {
				t.Errorf("without the type: took %d of %d bytes: %v", n, len(b), err)
			}
			if _, err := json.Marshal(v); err != nil {
				t.Error(err)
			}
		})
	}
}
