package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Encoder appends to dst the encoding of the value that text is the JSON of, as AppendJSON writes what a Dynamic decodes:
// whatever bytes were decoded come out again. It is strict: members that are missing, unknown or there twice, numbers that
// do not fit and what is behind the value are errors, which name the place and what is wanted there.
//
// In two places it takes more than AppendJSON writes: durations are numbers of nanoseconds too, and maps with any keys are
// lists of [key, value], maps with texts as keys objects too.
type Encoder func(dst []byte, text []byte) ([]byte, error)

// Encoder returns an encoder of what s describes, for the codecs that have a Layout.
func (s Schema) Encoder() (Encoder, error) {
	l, err := s.Layout()
	if err != nil {
		return nil, err
	}
	return l.Encode, nil
}

// Encode is an Encoder.
func (l *Layout) Encode(dst, text []byte) ([]byte, error) {
	e := encoder{d: jsontext.NewDecoder(bytes.NewReader(text))}
	out, err := e.layout(l, dst)
	if err == nil {
		if _, err = e.d.ReadToken(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errors.New("there is something behind the value")
		}
	}
	if err == nil && len(out)-len(dst) > MaxValue {
		err = tooLarge(uint64(len(out) - len(dst)))
	}
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", l.schema.Codec, err)
	}
	return out, nil
}

// encoder reads JSON.
type encoder struct{ d *jsontext.Decoder }

// want says what was wanted where the decoder is.
func (e *encoder) want(what string, got jsontext.Value, why ...any) error {
	at := string(e.d.StackPointer())
	if at != "" {
		at = "at " + at + ": "
	}
	text := string(got)
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	reason := ""
	if len(why) > 0 {
		reason = fmt.Sprintf(" (%v)", why[0])
	}
	return fmt.Errorf("%swant %s, not %s%s", at, what, text, reason)
}

// value reads a value that is no list or object as it is written, or one that is as a whole.
func (e *encoder) value() (jsontext.Value, error) {
	v, err := e.d.ReadValue()
	return v, malformed(err)
}

// malformed shortens the errors of the decoder.
func malformed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too soon")
	}
	return err
}

// open reads the beginning of a list or of an object.
func (e *encoder) open(kind jsontext.Kind, what string) error {
	if k := e.d.PeekKind(); k != kind {
		v, err := e.value()
		if err != nil {
			return err
		}
		return e.want(what, v)
	}
	_, err := e.d.ReadToken()
	return malformed(err)
}

// more tells whether something is left of the list or object; if not, its end is read.
func (e *encoder) more() (bool, error) {
	switch e.d.PeekKind() {
	case ']', '}':
		_, err := e.d.ReadToken()
		return false, err
	case 0:
		_, err := e.d.ReadToken()
		return false, malformed(err)
	}
	return true, nil
}

// name reads the name of a member.
func (e *encoder) name() (string, error) {
	t, err := e.d.ReadToken()
	if err != nil {
		return "", malformed(err)
	}
	return t.String(), nil
}

func (e *encoder) layout(l *Layout, dst []byte) ([]byte, error) {
	switch {
	case l.typ != nil:
		return e.typ(l.typ, dst)
	case l.comp != nil:
		return e.composite(l, dst)
	}
	v, err := e.value()
	if err != nil {
		return dst, err
	}
	if l.msg != nil {
		out, err := l.msg.encode(dst, v)
		if err != nil {
			return dst, e.want("the JSON of a "+string(l.msg.desc.FullName()), v, err)
		}
		return out, nil
	}
	text := v.Clone()
	if err := text.Compact(); err != nil {
		return dst, err
	}
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...), nil
}

func (e *encoder) typ(t *Type, dst []byte) ([]byte, error) {
	switch t.Kind {
	case KindPointer:
		return e.pointer(t, dst)
	case KindArray, KindSlice:
		return e.list(t, dst)
	case KindMap:
		return e.mapping(t, dst)
	case KindStruct:
		return e.structure(t, dst)
	case KindComplex64, KindComplex128:
		half := Type{Kind: KindFloat64}
		if t.Kind == KindComplex64 {
			half.Kind = KindFloat32
		}
		return e.list(&Type{Kind: KindArray, Elem: &half, Len: 2}, dst)
	}
	v, err := e.value()
	if err != nil {
		return dst, err
	}
	out, want, why := scalarBytes(t.Kind, dst, v)
	switch {
	case want == "":
		return out, nil
	case why != nil:
		return dst, e.want(want, v, why)
	}
	return dst, e.want(want, v)
}

// scalarBytes appends a value without parts. If v is none, want says what it should be, and perhaps why.
func scalarBytes(k Kind, dst []byte, v jsontext.Value) (out []byte, want string, why error) {
	kind := v.Kind()
	switch k {
	case KindBool:
		switch kind {
		case 't':
			return append(dst, 1), "", nil
		case 'f':
			return append(dst, 0), "", nil
		}
		return nil, "true or false", nil
	case KindInt8, KindInt16, KindInt32, KindInt64:
		bits := 8 * scalarWidth[k]
		n, err := strconv.ParseInt(string(v), 10, bits)
		if kind != '0' || err != nil {
			return nil, fmt.Sprintf("a whole number of %d bits with a sign", bits), nil
		}
		return appendNumber(dst, uint64(n), bits/8), "", nil
	case KindUint8, KindUint16, KindUint32, KindUint64:
		bits := 8 * scalarWidth[k]
		n, err := strconv.ParseUint(string(v), 10, bits)
		if kind != '0' || err != nil {
			return nil, fmt.Sprintf("a whole number of %d bits, not negative", bits), nil
		}
		return appendNumber(dst, n, bits/8), "", nil
	case KindFloat32, KindFloat64:
		bits, ok := floatBits(v, 8*scalarWidth[k])
		if !ok {
			return nil, fmt.Sprintf("a number, or \"NaN\", \"+Inf\" or \"-Inf\", of %d bits", 8*scalarWidth[k]), nil
		}
		return appendNumber(dst, bits, scalarWidth[k]), "", nil
	case KindDuration:
		const want = "a duration such as \"1h30m\", or nanoseconds"
		if kind == '0' {
			n, err := strconv.ParseInt(string(v), 10, 64)
			if err != nil {
				return nil, want, nil
			}
			return appendWord(dst, n), "", nil
		}
		s, ok := plainText(v)
		d, err := time.ParseDuration(s)
		if !ok || err != nil {
			return nil, want, nil
		}
		return appendWord(dst, int64(d)), "", nil
	case KindTime:
		s, ok := plainText(v)
		sec, nsec, good := parseInstant(s)
		if !ok || !good {
			return nil, "a time such as \"2001-02-03T04:05:06Z\", or \"@SECONDS.NANOSECONDS\" since 1970", nil
		}
		return binary.LittleEndian.AppendUint32(appendWord(dst, sec), nsec), "", nil
	case KindString:
		s, ok := anyText(v)
		if !ok {
			return nil, "a text, or {\"" + base64Member + "\": \"...\"} for one that is not UTF-8", nil
		}
		if len(s) > MaxValue {
			return nil, "a shorter text", tooLarge(uint64(len(s)))
		}
		return append(binary.AppendUvarint(dst, uint64(len(s))), s...), "", nil
	case KindBytes:
		if kind == 'n' {
			return append(dst, 0), "", nil
		}
		s, ok := plainText(v)
		b, err := base64.StdEncoding.DecodeString(s)
		if !ok || err != nil {
			return nil, "bytes in base64, or null", err
		}
		return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...), "", nil
	}
	return nil, "another type: " + string(k) + " is unknown", nil
}

func appendNumber(dst []byte, n uint64, width int) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	return append(dst, b[:width]...)
}

// base64Member is the only member of the object that stands for a text that is not UTF-8.
const base64Member = "$base64"

// plainText is the content of a JSON string.
func plainText(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// anyText is a text that may be given in base64.
func anyText(v jsontext.Value) (string, bool) {
	if v.Kind() != '{' {
		return plainText(v)
	}
	var o map[string]string
	if json.Unmarshal(v, &o) != nil || len(o) != 1 {
		return "", false
	}
	text, ok := o[base64Member]
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), ok && err == nil
}

func floatBits(v jsontext.Value, bits int) (uint64, bool) {
	text := string(v)
	if v.Kind() == '"' {
		s, ok := plainText(v)
		if hex, is := strings.CutPrefix(s, "NaN:"); is {
			n, err := strconv.ParseUint(hex, 16, bits)
			nan := math.IsNaN(math.Float64frombits(n))
			if bits == 32 {
				nan = n&0x7f800000 == 0x7f800000 && n&0x007fffff != 0
			}
			return n, ok && err == nil && nan
		}
		if s != "NaN" && s != "+Inf" && s != "-Inf" && s != "Inf" {
			return 0, false
		}
		text = s
	} else if v.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil {
		return 0, false
	}
	if bits == 32 {
		return uint64(math.Float32bits(float32(f))), true
	}
	return math.Float64bits(f), true
}

// parseInstant reads a time as AppendJSON writes it.
func parseInstant(s string) (sec int64, nsec uint32, ok bool) {
	if rest, is := strings.CutPrefix(s, "@"); is {
		whole, part, _ := strings.Cut(rest, ".")
		sec, err := strconv.ParseInt(whole, 10, 64)
		n, err2 := strconv.ParseUint(part, 10, 32)
		return sec, uint32(n), err == nil && err2 == nil && len(part) == 9
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	return at.Unix(), uint32(at.Nanosecond()), err == nil
}

func (e *encoder) pointer(t *Type, dst []byte) ([]byte, error) {
	switch e.d.PeekKind() {
	case 'n':
		_, err := e.d.ReadToken()
		return append(dst, 0), err
	case '{':
		v, err := e.value()
		if err != nil {
			return dst, err
		}
		// The object is read whole, to see whether it stands for a pointer; its parts' paths begin here.
		inner := v.Clone()
		var o map[string]jsontext.Value
		if json.Unmarshal(inner, &o) == nil && len(o) == 1 && o[pointerMember] != nil {
			inner = o[pointerMember]
		}
		at := e.d.StackPointer()
		sub := encoder{d: jsontext.NewDecoder(bytes.NewReader(inner))}
		out, err := sub.typ(t.Elem, append(dst, 1))
		if err != nil && at != "" {
			err = fmt.Errorf("in %s: %w", at, err)
		}
		return out, err
	}
	return e.typ(t.Elem, append(dst, 1))
}

func (e *encoder) list(t *Type, dst []byte) ([]byte, error) {
	if t.Kind == KindSlice && e.d.PeekKind() == 'n' {
		_, err := e.d.ReadToken()
		return append(dst, 0), err
	}
	if err := e.open('[', "a list"); err != nil {
		return dst, err
	}
	out := dst
	if t.Kind == KindSlice {
		out = nil // Its length comes first.
	}
	n := 0
	for ; ; n++ {
		more, err := e.more()
		if err != nil {
			return dst, err
		}
		if !more {
			break
		}
		if out, err = e.typ(t.Elem, out); err != nil {
			return dst, err
		}
	}
	if t.Kind == KindSlice {
		return append(binary.AppendUvarint(dst, uint64(n)+1), out...), nil
	}
	if n != t.Len {
		return dst, fmt.Errorf("at %s: want a list of %d, not of %d", e.d.StackPointer(), t.Len, n)
	}
	return out, nil
}

func (e *encoder) mapping(t *Type, dst []byte) ([]byte, error) {
	type span struct{ from, value, to int }
	var buf []byte
	var spans []span
	object := false
	switch k := e.d.PeekKind(); {
	case k == 'n':
		_, err := e.d.ReadToken()
		return append(dst, 0), err
	case k == '{':
		object = true
	case k != '[':
		v, err := e.value()
		if err != nil {
			return dst, err
		}
		return dst, e.want("an object or a list of [key, value]", v)
	}
	if _, err := e.d.ReadToken(); err != nil {
		return dst, malformed(err)
	}
	for {
		more, err := e.more()
		if err != nil {
			return dst, err
		}
		if !more {
			break
		}
		s := span{from: len(buf)}
		switch {
		case object && t.Key.Kind == KindString:
			name, err := e.name()
			if err != nil {
				return dst, err
			}
			buf = append(binary.AppendUvarint(buf, uint64(len(name))), name...)
		case object:
			return dst, fmt.Errorf("at %s: want a list of [key, value], since the keys are %s", e.d.StackPointer(), t.Key.short(nil))
		default:
			if err := e.open('[', "a pair [key, value]"); err != nil {
				return dst, err
			}
			if buf, err = e.typ(t.Key, buf); err != nil {
				return dst, err
			}
		}
		s.value = len(buf)
		if buf, err = e.typ(t.Elem, buf); err != nil {
			return dst, err
		}
		s.to = len(buf)
		if !object {
			if more, err := e.more(); err != nil || more {
				return dst, fmt.Errorf("at %s: want a pair [key, value]", e.d.StackPointer())
			}
		}
		spans = append(spans, s)
	}
	slices.SortFunc(spans, func(a, b span) int { return bytes.Compare(buf[a.from:a.value], buf[b.from:b.value]) })
	dst = binary.AppendUvarint(dst, uint64(len(spans))+1)
	for i, s := range spans {
		if i > 0 && bytes.Equal(buf[spans[i-1].from:spans[i-1].value], buf[s.from:s.value]) {
			return dst, fmt.Errorf("at %s: a key of the map is there twice", e.d.StackPointer())
		}
		dst = append(dst, buf[s.from:s.to]...)
	}
	return dst, nil
}

// members reads an object whose members have these names, each once, optional ones at most. read reads the value of one
// and appends what it is; the values come out in the order of the names.
func (e *encoder) members(dst []byte, what string, names []string, optional func(i int) bool, read func(i int, dst []byte) ([]byte, error)) ([]byte, error) {
	if err := e.open('{', what); err != nil {
		return dst, err
	}
	start := len(dst)
	spans := make([][2]int, len(names))
	next, inOrder := 0, true
	for {
		more, err := e.more()
		if err != nil {
			return dst, err
		}
		if !more {
			break
		}
		name, err := e.name()
		if err != nil {
			return dst, err
		}
		i := slices.Index(names, name)
		if i < 0 {
			return dst, fmt.Errorf("at %s: there is no %q: want %s", e.d.StackPointer(), name, strings.Join(names, ", "))
		}
		inOrder = inOrder && i >= next
		next = i + 1
		from := len(dst)
		if dst, err = read(i, dst); err != nil {
			return dst, err
		}
		spans[i] = [2]int{from + 1, len(dst) + 1} // 0 is none.
	}
	var missing []string
	for i, s := range spans {
		if s[0] == 0 && !optional(i) {
			missing = append(missing, names[i])
		}
	}
	if len(missing) > 0 {
		at := string(e.d.StackPointer())
		if at != "" {
			at = "at " + at + ": "
		}
		return dst, fmt.Errorf("%s%s missing", at, strings.Join(missing, ", "))
	}
	if inOrder {
		return dst, nil
	}
	read1 := slices.Clone(dst[start:])
	dst = dst[:start]
	for _, s := range spans {
		if s[0] > 0 {
			dst = append(dst, read1[s[0]-1-start:s[1]-1-start]...)
		}
	}
	return dst, nil
}

func (e *encoder) structure(t *Type, dst []byte) ([]byte, error) {
	names := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		names[i] = f.Name
	}
	return e.members(dst, "an object", names, func(int) bool { return false }, func(i int, dst []byte) ([]byte, error) {
		return e.typ(t.Fields[i].Type, dst)
	})
}

func (e *encoder) composite(l *Layout, dst []byte) ([]byte, error) {
	c := l.comp
	var p Parts
	names := make([]string, len(c.members))
	for i, m := range c.members {
		names[i] = m.name
		switch m.kind {
		case memberNumber, memberTime, memberFlag:
			p.Nums = append(p.Nums, 0)
		case memberPart, memberOptional:
			p.Vals = append(p.Vals, nil)
		}
	}
	_, err := e.members(nil, "an object", names, func(i int) bool { return c.members[i].kind == memberOptional }, func(i int, _ []byte) ([]byte, error) {
		m := c.members[i]
		var err error
		switch m.kind {
		case memberNumber, memberTime, memberFlag:
			p.Nums[m.at], err = e.number(m.kind)
		case memberPart, memberOptional:
			p.Vals[m.at], err = e.layout(l.parts[m.part], []byte{})
		case memberList:
			p.Elems, err = e.elements(l.parts[m.part])
		}
		return nil, err
	})
	if err != nil {
		return dst, err
	}
	return l.Join(dst, p)
}

func (e *encoder) elements(l *Layout) (out [][]byte, err error) {
	if err := e.open('[', "a list"); err != nil {
		return nil, err
	}
	for {
		more, err := e.more()
		if err != nil || !more {
			return out, err
		}
		b, err := e.layout(l, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
}

func (e *encoder) number(kind memberKind) (int64, error) {
	v, err := e.value()
	if err != nil {
		return 0, err
	}
	switch {
	case kind == memberFlag && v.Kind() == 't':
		return 1, nil
	case kind == memberFlag && v.Kind() == 'f':
		return 0, nil
	case kind == memberFlag:
		return 0, e.want("true or false", v)
	case kind == memberTime:
		if ms, ok := ParseMillis(v); ok {
			return ms, nil
		}
		return 0, e.want("a time such as \"2001-02-03T04:05:06Z\", or milliseconds since 1970", v)
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if v.Kind() != '0' || err != nil {
		return 0, e.want("a whole number", v)
	}
	return n, nil
}

// ParseMillis reads the JSON of a time in whole milliseconds, or of their number since 1970.
func ParseMillis(text []byte) (int64, bool) {
	v := jsontext.Value(text)
	if v.Kind() == '0' {
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil
	}
	s, ok := plainText(v)
	at, err := time.Parse(time.RFC3339Nano, s)
	ms := at.UnixMilli()
	return ms, ok && err == nil && time.UnixMilli(ms).Equal(at)
}

// AppendJSON appends the JSON of a value that a Dynamic has decoded, in one line and as short as it is. An Encoder reads it
// back to the same bytes. Bytes are in base64, durations are texts such as "1h30m0s", a text that is not UTF-8 is
// {"$base64": "..."}.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	case float64:
		b, err := json.Marshal(v)
		return append(dst, b...), err
	case string:
		return appendText(dst, v), nil
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v), '"'), nil
	case time.Time:
		return append(v.UTC().AppendFormat(append(dst, '"'), time.RFC3339Nano), '"'), nil
	case time.Duration:
		return append(append(append(dst, '"'), v.String()...), '"'), nil
	case json.RawMessage:
		return append(dst, v...), nil
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = AppendJSON(dst, x); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case Object:
		dst = append(dst, '{')
		for i, m := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = AppendJSON(append(appendText(dst, m.Name), ':'), m.Value); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	case Map:
		return appendMap(dst, v)
	}
	return dst, fmt.Errorf("a value of type %T has no JSON", v)
}

func appendMap(dst []byte, m Map) ([]byte, error) {
	object := true
	for _, e := range m {
		s, ok := e.Key.(string)
		object = object && ok && utf8.ValidString(s)
	}
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i, e := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if !object {
			dst = append(dst, '[')
		}
		if dst, err = AppendJSON(dst, e.Key); err != nil {
			return dst, err
		}
		if object {
			dst = append(dst, ':')
		} else {
			dst = append(dst, ',')
		}
		if dst, err = AppendJSON(dst, e.Value); err != nil {
			return dst, err
		}
		if !object {
			dst = append(dst, ']')
		}
	}
	return append(dst, end), nil
}

func appendText(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		dst = append(append(dst, '{', '"'), base64Member...)
		return append(base64.StdEncoding.AppendEncode(append(dst, `":"`...), []byte(s)), '"', '}')
	}
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		panic(fmt.Sprintf("quote a text: %v", err)) // Only what is not UTF-8 fails.
	}
	return out
}
