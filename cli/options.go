package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/cairnstream/cairn/internal/spelling"
	"github.com/cairnstream/cairn/job"
)

// options are the settings of one command. A setting is found in a file, in a variable and in a flag; the later of these
// wins, and where there is none, the zero value stays, for which the configuration has a default.
type options struct {
	list     []*option
	fromFile bool   // There is --config.
	config   option // --config itself.
	file     string
	// fill puts in the defaults; check lists what is wrong with the whole, once each part is in its place.
	fill  func()
	check func() []string
	// more, if set, lists what would be found wrong later, with the first argument. It is asked when something is wrong
	// already.
	more func(arg string) []string
}

// option is one setting.
type option struct {
	key   string // Of the flag and in the file; the variable is CAIRN_KEY.
	short string // One letter, or empty.
	usage string
	arg   string // What stands for the value in the help.
	set   func(texts []string) error
	get   func() string
	list  bool // It may be given several times, and is a list in the file.
	flag  bool // It is a flag and nothing else: it belongs to one call, not to an installation.
	yes   bool // A flag without a value.
	plain bool // Its text is not a string in YAML.

	raw    raw
	source string
	failed bool // It has a value that is wrong.
}

// raw is a flag's value as it was written. It takes anything, so that the parse goes on.
type raw struct {
	texts []string
	arg   string
	yes   bool
}

func (r *raw) Set(s string) error { r.texts = append(r.texts, s); return nil }
func (r *raw) String() string     { return "" }
func (r *raw) Type() string       { return r.arg }

func (o *options) add(p *option) *option {
	o.list = append(o.list, p)
	return p
}

func last(texts []string) string { return texts[len(texts)-1] }

func (o *options) text(p *string, key, arg, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: arg,
		set: func(t []string) error { *p = last(t); return nil },
		get: func() string { return *p },
	})
}

func (o *options) number(p *int, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "N", plain: true,
		set: func(t []string) error {
			n, err := strconv.Atoi(last(t))
			if err != nil {
				return fmt.Errorf("%q is not a whole number", last(t))
			}
			if n < 1 {
				return fmt.Errorf("%d: want at least 1", n)
			}
			*p = n
			return nil
		},
		get: func() string { return strconv.Itoa(*p) },
	})
}

func (o *options) duration(p *time.Duration, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "DURATION", plain: true,
		set: func(t []string) error {
			d, err := time.ParseDuration(last(t))
			if err != nil {
				return fmt.Errorf("%q is not a duration with a unit, such as 500ms or 10s", last(t))
			}
			if d <= 0 {
				return fmt.Errorf("%v: want more than 0", d)
			}
			*p = d
			return nil
		},
		get: func() string { return p.String() },
	})
}

// size is an amount of memory or data.
func (o *options) size(p *job.Bytes, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "SIZE",
		set: func(t []string) error {
			n, err := job.ParseBytes(last(t))
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("%v: want more than 0", n)
			}
			*p = n
			return nil
		},
		get: func() string { return p.String() },
	})
}

// rate is an amount of data per second; 0 is no limit.
func (o *options) rate(p *job.Bytes, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "SIZE",
		set: func(t []string) (err error) {
			*p, err = job.ParseBytes(strings.TrimSuffix(last(t), "/s"))
			return err
		},
		get: func() string { return p.String() },
	})
}

func (o *options) yesNo(p *bool, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, yes: true, plain: true,
		set: func(t []string) error {
			v, err := strconv.ParseBool(last(t))
			if err != nil {
				return fmt.Errorf("%q is not true or false", last(t))
			}
			*p = v
			return nil
		},
		get: func() string { return strconv.FormatBool(*p) },
	})
}

// addresses is a list that may be separated by commas.
func (o *options) addresses(p *[]string, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "HOST:PORT,...", list: true,
		set: func(t []string) error {
			var out []string
			for _, s := range t {
				for _, a := range strings.Split(s, ",") {
					if a = strings.TrimSpace(a); a == "" {
						return fmt.Errorf("%q has an empty address", s)
					}
					out = append(out, a)
				}
			}
			*p = out
			return nil
		},
		get: func() string { return strings.Join(*p, ",") },
	})
}

// pairs are KEY=VALUE, given once each.
func (o *options) pairs(p *map[string]string, key, usage string) *option {
	return o.add(&option{
		key: key, usage: usage, arg: "KEY=VALUE", list: true, flag: true,
		set: func(t []string) error {
			out := map[string]string{}
			var bad []string
			for _, s := range t {
				k, v, ok := strings.Cut(s, "=")
				if _, twice := out[k]; !ok || k == "" {
					bad = append(bad, fmt.Sprintf("%q is not KEY=VALUE", s))
					continue
				} else if twice {
					bad = append(bad, fmt.Sprintf("%q is given twice", k))
				}
				out[k] = v
			}
			*p = out
			if len(bad) > 0 {
				return errors.New(strings.Join(bad, "; "))
			}
			return nil
		},
		get: func() string { return fmt.Sprint(*p) },
	})
}

// choice is one of several words.
func (o *options) choice(p *string, key, usage string, words ...string) *option {
	return o.add(&option{
		key: key, usage: fmt.Sprintf("%s: %s (default %s)", usage, strings.Join(words, ", "), *p), arg: "WORD",
		set: func(t []string) error {
			if !slices.Contains(words, last(t)) {
				return fmt.Errorf("%q: want one of %s", last(t), strings.Join(words, ", "))
			}
			*p = last(t)
			return nil
		},
		get: func() string { return *p },
	})
}

// register makes the flags.
func (o *options) register(fs *pflag.FlagSet) {
	if o.fromFile {
		o.config = option{
			key: "config", arg: "FILE", usage: "YAML file with settings by the names of the flags; variables CAIRN_NAME and flags win over it",
			flag: true, set: func(t []string) error { o.file = last(t); return nil },
		}
		o.config.register(fs)
	}
	for _, p := range o.list {
		p.register(fs)
	}
	fs.SortFlags = false
}

func (p *option) register(fs *pflag.FlagSet) {
	p.raw.arg, p.raw.yes = p.arg, p.yes
	f := fs.VarPF(&p.raw, p.key, p.short, p.usage)
	if p.yes {
		f.NoOptDefVal = "true"
	}
}

const envPrefix = "CAIRN_"

func (p *option) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(p.key, "-", "_"))
}

// load finds every setting and returns everything that is wrong with them.
func (o *options) load(environ []string) (problems []string) {
	env := map[string]string{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, envPrefix) {
			env[k] = v
		}
	}
	if o.fromFile {
		from := "--config"
		if v, ok := env["CAIRN_CONFIG"]; ok && len(o.config.raw.texts) == 0 {
			o.file, from = v, "CAIRN_CONFIG"
		} else if len(o.config.raw.texts) > 0 {
			o.file = last(o.config.raw.texts)
		}
		if o.file != "" {
			problems = append(problems, o.readFile(from)...)
		}
	}
	known := []string{"CAIRN_CONFIG"}
	for _, p := range o.list {
		if p.flag {
			continue
		}
		known = append(known, p.env())
		if v, ok := env[p.env()]; ok {
			problems = append(problems, p.take([]string{v}, p.env())...)
		}
	}
	problems = append(problems, misspelt(env, known)...)
	for _, p := range o.list {
		if len(p.raw.texts) > 0 {
			problems = append(problems, p.take(p.raw.texts, "--"+p.key)...)
		}
	}
	if o.fill != nil {
		o.fill()
	}
	return problems
}

func (p *option) take(texts []string, source string) []string {
	p.source = source
	if err := p.set(texts); err != nil {
		p.failed = true
		return []string{source + ": " + err.Error()}
	}
	return nil
}

// readFile takes settings from the file. Unknown keys and keys that come twice are problems.
func (o *options) readFile(from string) (problems []string) {
	data, err := os.ReadFile(o.file)
	if err != nil {
		return []string{from + ": " + err.Error()}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return []string{o.file + ": " + err.Error()}
	}
	if len(doc.Content) == 0 {
		return nil // An empty file.
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return []string{fmt.Sprintf("%s:%d: want settings as KEY: VALUE", o.file, top.Line)}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		at := fmt.Sprintf("%s:%d: %s", o.file, k.Line, k.Value)
		if line := seen[k.Value]; line > 0 {
			problems = append(problems, fmt.Sprintf("%s: is set on line %d already", at, line))
			continue
		}
		seen[k.Value] = k.Line
		p := o.find(k.Value)
		if p == nil {
			problems = append(problems, fmt.Sprintf("%s:%d: unknown key %q; known: %s", o.file, k.Line, k.Value, strings.Join(o.keys(), ", ")))
			continue
		}
		texts, ok := scalars(v, p.list)
		if !ok {
			p.failed = true
			what := "one value"
			if p.list {
				what = "a value or a list of values"
			}
			problems = append(problems, at+": want "+what)
			continue
		}
		problems = append(problems, p.take(texts, at)...)
		p.source = fmt.Sprintf("%s:%d", o.file, k.Line)
	}
	return problems
}

// scalars are the texts of a value, or of a list where one is allowed.
func scalars(v *yaml.Node, list bool) ([]string, bool) {
	if v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
		return []string{v.Value}, true
	}
	if v.Kind != yaml.SequenceNode || !list || len(v.Content) == 0 {
		return nil, false
	}
	var out []string
	for _, c := range v.Content {
		if c.Kind != yaml.ScalarNode {
			return nil, false
		}
		out = append(out, c.Value)
	}
	return out, true
}

func (o *options) find(key string) *option {
	for _, p := range o.list {
		if p.key == key && !p.flag {
			return p
		}
	}
	return nil
}

func (o *options) keys() (out []string) {
	for _, p := range o.list {
		if !p.flag {
			out = append(out, p.key)
		}
	}
	slices.Sort(out)
	return out
}

// checked is what check says of settings whose own value was not wrong already.
func (o *options) checked() (problems []string) {
	if o.check == nil {
		return nil
	}
	for _, problem := range o.check() {
		key, _, _ := strings.Cut(problem, ":")
		if p := o.find(key); p == nil || !p.failed {
			problems = append(problems, problem)
		}
	}
	return problems
}

// given tells whether a setting was found anywhere.
func (o *options) given(key string) bool {
	for _, p := range o.list {
		if p.key == key {
			return p.source != ""
		}
	}
	return false
}

// misspelt lists the variables that look like a known one. Others with the prefix are none of ours: Kubernetes, for one,
// sets CAIRN_PORT and the like for a service named cairn.
func misspelt(env map[string]string, known []string) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if slices.Contains(known, name) || strings.HasPrefix(name, "CAIRN_TOOLS_") {
			continue
		}
		for _, k := range known {
			if spelling.Distance(name, k) <= 2 && !slices.Contains(allVariables, name) {
				problems = append(problems, fmt.Sprintf("unknown variable %s; did you mean %s?", name, k))
				break
			}
		}
	}
	return problems
}

// allVariables are those of some command: one that is set for another command is no mistake.
var allVariables = []string{
	"CAIRN_ADVERTISE", "CAIRN_BLOB", "CAIRN_CLUSTER", "CAIRN_CONFIG", "CAIRN_DIR", "CAIRN_ETCD", "CAIRN_HEARTBEAT", "CAIRN_HTTP",
	"CAIRN_JOBMANAGER", "CAIRN_LISTEN", "CAIRN_LOG_LEVEL", "CAIRN_OUTPUT", "CAIRN_PORTS_FILE", "CAIRN_SHUTDOWN_TIMEOUT",
	"CAIRN_SLOTS", "CAIRN_STATE_MEMORY", "CAIRN_TASKMANAGERS", "CAIRN_TOKEN",
	"CAIRN_UPLOAD_CONCURRENCY", "CAIRN_UPLOAD_RATE",
}

// secret is the part of a URL that nobody should see.
var secret = regexp.MustCompile(`(://)[^/@\s]+@`)

// print writes the settings as a file that --config takes, with where each comes from.
func (o *options) print(w io.Writer) error {
	width := 0
	lines := make([][2]string, 0, len(o.list))
	for _, p := range o.list {
		if p.flag {
			continue
		}
		v := []byte(p.get())
		if !p.plain {
			var err error
			if v, err = yaml.Marshal(secret.ReplaceAllString(p.get(), "$1***@")); err != nil {
				return err
			}
		}
		source := p.source
		switch {
		case source == "":
			source = "default"
		case strings.HasPrefix(source, "--"):
			source = "flag " + source
		case strings.HasPrefix(source, envPrefix):
			source = "variable " + source
		}
		line := p.key + ": " + strings.TrimSpace(string(v))
		width = max(width, len(line))
		lines = append(lines, [2]string{line, source})
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-*s  # %s\n", width, l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

// unknownFlags lists the flags of args that c does not have.
func unknownFlags(c *cobra.Command, args []string) (problems []string) {
	c.InitDefaultHelpFlag()
	_ = c.InheritedFlags() // Merges those of the parents into Flags.
	fs := c.Flags()
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			break
		}
		var f *pflag.Flag
		name, _, hasValue := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(a, "--"):
			if f = fs.Lookup(name[2:]); f == nil {
				problems = append(problems, "unknown flag "+name+suggestion(fs, name[2:]))
				continue
			}
		case strings.HasPrefix(a, "-") && len(a) > 1:
			if f = fs.ShorthandLookup(a[1:2]); f == nil {
				problems = append(problems, "unknown flag -"+a[1:2])
				continue
			}
			hasValue = len(a) > 2
		default:
			continue
		}
		if !hasValue && f.NoOptDefVal == "" {
			i++ // Its value.
		}
	}
	return problems
}

func suggestion(fs *pflag.FlagSet, name string) string {
	best, found := 3, ""
	fs.VisitAll(func(f *pflag.Flag) {
		if d := spelling.Distance(name, f.Name); d < best {
			best, found = d, f.Name
		}
	})
	if found == "" {
		return ""
	}
	return "; did you mean --" + found + "?"
}
