package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// compiler turns a Go type into a program and the description of its encoding. It collects every
// reason why the type cannot be encoded.
type compiler struct {
	native   bool           // Memory order is encoding order.
	lossy    bool           // Some field is left out.
	open     []reflect.Type // Types being compiled, outermost first.
	problems []string
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
)

// compile makes the program of t and its description.
func compile(t reflect.Type, native bool) (*program, *Type, error) {
	c := &compiler{native: native}
	p, shape := c.program(t, "")
	if len(c.problems) == 0 && p.min > MaxValue {
		c.refuse("", t, fmt.Sprintf("takes at least %d bytes: the limit is %d", p.min, MaxValue))
	}
	if len(c.problems) > 0 {
		return nil, nil, errors.New(strings.Join(c.problems, "; "))
	}
	p.lossy = c.lossy
	return p, shape, nil
}

func (c *compiler) refuse(path string, t reflect.Type, why string) {
	if path == "" {
		c.problems = append(c.problems, fmt.Sprintf("%v %s", t, why))
		return
	}
	c.problems = append(c.problems, fmt.Sprintf("field %s (%v) %s", path, t, why))
}

// program compiles t as a value of its own: the whole, or what a pointer, slice or map holds.
func (c *compiler) program(t reflect.Type, path string) (*program, *Type) {
	p := &program{typ: t, size: int(t.Size())}
	shape := c.add(p, t, 0, path)
	if shape == nil {
		return p, nil
	}
	p.min = shape.width()
	c.finish(p)
	return p, shape
}

// finish sets what follows from the ops of p.
func (c *compiler) finish(p *program) {
	switch len(p.ops) {
	case 0:
		p.dense = p.size == 0
	case 1:
		if o := &p.ops[0]; o.kind == opRun && o.off == 0 && o.size == p.size {
			p.dense, p.bools = true, o.bools
		}
	}
	p.plain = true
	for i := range p.ops {
		o := &p.ops[i]
		if c.native && o.kind == opRun && len(o.bools) == 0 {
			switch o.size {
			case 8:
				o.kind = opWord8
			case 4:
				o.kind = opWord4
			case 2:
				o.kind = opWord2
			case 1:
				o.kind = opByte
			}
		}
		p.plain = p.plain && (o.kind < opString || o.kind == opArray && o.elem.plain)
	}
}

// add appends to p what encodes a t at offset off. It returns nil if t is refused.
func (c *compiler) add(p *program, t reflect.Type, off uintptr, path string) *Type {
	if slices.Contains(c.open, t) {
		c.refuse(path, t, "contains itself")
		return nil
	}
	c.open = append(c.open, t)
	defer func() { c.open = c.open[:len(c.open)-1] }()

	switch t {
	case timeType:
		p.ops = append(p.ops, op{kind: opTime, off: off, path: path})
		return &Type{Kind: KindTime}
	case durationType:
		c.fixed(p, off, 8, path)
		return &Type{Kind: KindDuration}
	}
	switch t.Kind() {
	case reflect.Bool:
		c.run(p, off, 1, []int{0}, path)
		return &Type{Kind: KindBool}
	case reflect.Int:
		c.fixed(p, off, 8, path)
		return &Type{Kind: KindInt64}
	case reflect.Uint:
		c.fixed(p, off, 8, path)
		return &Type{Kind: KindUint64}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		c.fixed(p, off, int(t.Size()), path)
		return &Type{Kind: Kind(t.Kind().String())}
	case reflect.Complex64, reflect.Complex128:
		half := t.Size() / 2
		c.fixed(p, off, int(half), path)
		c.fixed(p, off+half, int(half), path)
		return &Type{Kind: Kind(t.Kind().String())}
	case reflect.String:
		p.ops = append(p.ops, op{kind: opString, off: off, path: path})
		return &Type{Kind: KindString}
	case reflect.Struct:
		return c.fields(p, t, off, path)
	case reflect.Array:
		return c.array(p, t, off, path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			p.ops = append(p.ops, op{kind: opBytes, off: off, path: path})
			return &Type{Kind: KindBytes}
		}
		elem, shape := c.program(t.Elem(), path)
		if shape == nil {
			return nil
		}
		if elem.min == 0 {
			c.refuse(path, t, "has elements that take no bytes")
			return nil
		}
		p.ops = append(p.ops, op{kind: opSlice, off: off, typ: t, elem: elem, path: path})
		return &Type{Kind: KindSlice, Elem: shape}
	case reflect.Pointer:
		elem, shape := c.program(t.Elem(), path)
		if shape == nil {
			return nil
		}
		p.ops = append(p.ops, op{kind: opPointer, off: off, typ: t, elem: elem, path: path})
		return &Type{Kind: KindPointer, Elem: shape}
	case reflect.Map:
		return c.mapping(p, t, off, path)
	}
	c.refuse(path, t, "has no encoding: leave it out with the tag `cairn:\"-\"`, or give a codec")
	return nil
}

// fixed adds a number of width bytes.
func (c *compiler) fixed(p *program, off uintptr, width int, path string) {
	if c.native || width == 1 {
		c.run(p, off, width, nil, path)
		return
	}
	kind := map[int]opKind{8: opWord8, 4: opWord4, 2: opWord2}[width]
	p.ops = append(p.ops, op{kind: kind, off: off, size: width, path: path})
}

// run adds size bytes that are encoded as they lie in memory, joined to those before if they
// touch. bools are the positions within it of bytes that must be 0 or 1.
func (c *compiler) run(p *program, off uintptr, size int, bools []int, path string) {
	if n := len(p.ops); n > 0 {
		if last := &p.ops[n-1]; last.kind == opRun && last.off+uintptr(last.size) == off {
			for _, b := range bools {
				last.bools = append(last.bools, last.size+b)
			}
			last.size += size
			return
		}
	}
	p.ops = append(p.ops, op{kind: opRun, off: off, size: size, bools: slices.Clone(bools), path: path})
}

// maxBools bounds the list of bools of a run: a large array with bools in it becomes a loop.
const maxBools = 256

func (c *compiler) array(p *program, t reflect.Type, off uintptr, path string) *Type {
	elem, shape := c.program(t.Elem(), path)
	if shape == nil {
		return nil
	}
	n := t.Len()
	switch {
	case n == 0:
	case elem.min == 0:
		c.refuse(path, t, "has elements that take no bytes")
		return nil
	case elem.dense && n*len(elem.bools) <= maxBools:
		var bools []int
		for i := range n {
			for _, b := range elem.bools {
				bools = append(bools, i*elem.size+b)
			}
			if len(bools) == 0 {
				break
			}
		}
		c.run(p, off, int(t.Size()), bools, path)
	default:
		p.ops = append(p.ops, op{kind: opArray, off: off, size: n, typ: t, elem: elem, path: path})
	}
	return &Type{Kind: KindArray, Len: n, Elem: shape}
}

func (c *compiler) mapping(p *program, t reflect.Type, off uintptr, path string) *Type {
	if why := keyProblem(t.Key()); why != "" {
		c.refuse(path, t, "has a key that "+why)
		return nil
	}
	key, keyShape := c.program(t.Key(), path)
	elem, elemShape := c.program(t.Elem(), path)
	if keyShape == nil || elemShape == nil {
		return nil
	}
	o := op{kind: opMap, off: off, typ: t, key: key, elem: elem, path: path}
	o.scratch = &sync.Pool{New: func() any {
		return &mapScratch{key: reflect.New(t.Key()).Elem(), elem: reflect.New(t.Elem()).Elem()}
	}}
	p.ops = append(p.ops, o)
	return &Type{Kind: KindMap, Key: keyShape, Elem: elemShape}
}

func (c *compiler) fields(p *program, t reflect.Type, off uintptr, path string) *Type {
	shape := &Type{Kind: KindStruct, Fields: []Field{}}
	ok := true
	names := map[string]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue // Padding.
		}
		at := f.Name
		if path != "" {
			at = path + "." + f.Name
		}
		tag, err := parseTag(f.Tag.Get("cairn"))
		switch {
		case err != nil:
			c.refuse(at, f.Type, err.Error())
			ok = false
			continue
		case tag.skip:
			c.lossy = true
			p.ops = append(p.ops, op{kind: opClear, off: off + f.Offset, typ: f.Type, path: at})
			continue
		case !f.IsExported() && (!f.Anonymous || f.Type.Kind() != reflect.Struct):
			c.refuse(at, f.Type, "is not exported: leave it out with the tag `cairn:\"-\"`, or give a codec for "+t.String())
			ok = false
			continue
		}
		name := tag.name
		if name == "" {
			name = f.Name
		}
		if other, taken := names[name]; taken {
			c.refuse(at, f.Type, fmt.Sprintf("has the same name %q as field %s", name, other))
			ok = false
		}
		names[name] = f.Name
		ft := c.add(p, f.Type, off+f.Offset, at)
		if ft == nil {
			ok = false
			continue
		}
		shape.Fields = append(shape.Fields, Field{Name: name, Aliases: tag.aliases, Type: ft})
	}
	for i, f := range shape.Fields {
		for _, a := range f.Aliases {
			for j, o := range shape.Fields {
				if j != i && (o.Name == a || j < i && slices.Contains(o.Aliases, a)) {
					c.refuse(strings.TrimPrefix(path+"."+f.Name, "."), t, fmt.Sprintf("has the alias %q, which field %s claims too: "+
						"an old field becomes one new field", a, o.Name))
					ok = false
				}
			}
		}
	}
	if !ok {
		return nil
	}
	return shape
}

// fieldTag is the content of a `cairn` tag.
type fieldTag struct {
	name    string
	aliases []string
	skip    bool
}

// parseTag reads `-`, or a name (empty: that of the field) followed by options, of which there is
// one: alias=NAME, a name that the field had before. It may be repeated.
func parseTag(s string) (fieldTag, error) {
	if s == "-" {
		return fieldTag{skip: true}, nil
	}
	parts := strings.Split(s, ",")
	tag := fieldTag{name: parts[0]}
	for _, part := range parts[1:] {
		alias, isAlias := strings.CutPrefix(part, "alias=")
		if !isAlias || alias == "" {
			return tag, fmt.Errorf("has the tag %q: want name,alias=old", s)
		}
		tag.aliases = append(tag.aliases, alias)
	}
	return tag, nil
}
