package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/internal/gcfloor"
	"github.com/cairnstream/cairn/serve"
)

// Version of the binary; set when it is linked.
var Version = buildVersion()

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, dirty := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && (version == "" || version == "(devel)"):
			version = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if version == "" || version == "(devel)" {
		return "devel"
	}
	return strings.TrimSuffix(version, "+dirty") + dirty
}

// Programs are those that the binary has.
type Programs = serve.Programs

// App is one run of a command line. Make one with New; a test gives its own ends.
type App struct {
	Name     string // Of the binary.
	Programs Programs
	Stdout   io.Writer
	Stderr   io.Writer
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Terminal tells whether Stderr is one, so that progress may overwrite itself.
	Terminal bool
	// Signals gives the context of a command: done at the first request to end. A second one ends the process.
	Signals func() (context.Context, context.CancelFunc)

	commands []func(*App) *cobra.Command
	unknown  []string // Flags that the command does not have.
}

// New makes an App of this process.
func New(p Programs) *App {
	if p == nil {
		p = none{}
	}
	a := &App{
		Name: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), Programs: p, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ: os.Environ(),
	}
	if st, err := os.Stderr.Stat(); err == nil {
		a.Terminal = st.Mode()&os.ModeCharDevice != 0
	}
	a.Signals = a.processSignals
	return a
}

// Add registers a command of its own, such as cairn demo.
func (a *App) Add(c func(*App) *cobra.Command) { a.commands = append(a.commands, c) }

// Main is the command line of a binary with programs: run, list, plan, submit, taskmanager, local. argv is without the
// name of the binary. It returns the exit code.
func Main(p Programs, argv []string) int { return New(p).Program(argv) }

// Program is the command line of a binary with programs.
func (a *App) Program(argv []string) int {
	root := a.root("runs the programs that are compiled into it")
	root.AddCommand(
		a.runCommand(), a.listCommand(), a.planCommand(), a.checkCommand(), a.submitCommand(), a.taskManagerCommand("taskmanager"), a.localCommand(),
		a.versionCommand(),
	)
	return a.execute(root, argv)
}

// Cairn is the command line of cairn.
func (a *App) Cairn(argv []string) int {
	root := a.root("runs and controls stream processing jobs")
	root.AddCommand(
		a.jobManagerCommand("jobmanager"), a.taskManagerCommand("taskmanager"), a.localCommand(),
		a.jobCommand(), a.checkpointCommand(), a.savepointCommand(), a.nodeCommand(), a.stateCommand(), a.gcCommand(), a.versionCommand(),
	)
	return a.execute(root, argv)
}

// JobManager is the command line of jobmanager.
func (a *App) JobManager(argv []string) int { return a.execute(a.jobManagerCommand(a.Name), argv) }

// TaskManager is the command line of taskmanager.
func (a *App) TaskManager(argv []string) int { return a.execute(a.taskManagerCommand(a.Name), argv) }

func (a *App) root(short string) *cobra.Command {
	return a.group(&cobra.Command{Use: a.Name, Short: a.Name + " " + short})
}

// Group finishes a command of another package that only has others.
func (a *App) Group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	return a.group(c, subs...)
}

// group makes a command that only has others. Cobra would print its help and call that a success.
func (a *App) group(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	c.AddCommand(subs...)
	c.SuggestionsMinimumDistance = 2
	c.Args = cobra.ArbitraryArgs // RunE says what is wrong with them.
	c.FParseErrWhitelist.UnknownFlags = true
	c.RunE = func(c *cobra.Command, args []string) error {
		problems := a.unknown
		switch {
		case len(args) > 0:
			p := fmt.Sprintf("unknown command %q", args[0])
			if s := c.SuggestionsFor(args[0]); len(s) > 0 {
				p += "; did you mean " + strings.Join(s, " or ") + "?"
			}
			problems = append(problems, p)
		case len(problems) == 0:
			fmt.Fprint(a.Stderr, c.UsageString())
			problems = []string{"a command is missing"}
		}
		return usage(c.CommandPath(), problems...)
	}
	return c
}

// command finishes a command that does something. All of its flags are options of o, so that nothing that is wrong with
// them ends the parse before the rest was looked at.
func (a *App) command(c *cobra.Command, o *options, run func(ctx context.Context, args []string) error) *cobra.Command {
	want := strings.Fields(c.Use)[1:]
	required := 0
	for _, w := range want {
		if !strings.HasPrefix(w, "[") {
			required++
		}
	}
	c.DisableFlagsInUseLine = false
	c.FParseErrWhitelist.UnknownFlags = true
	o.register(c.Flags())
	var printConfig *bool
	if o.fromFile {
		printConfig = new(bool)
		c.Flags().BoolVar(printConfig, "print-config", false, "print every setting with where it comes from, and end")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		problems := append([]string(nil), a.unknown...)
		if len(problems) == 0 { // A value of an unknown flag may look like an argument.
			problems = append(problems, argumentProblems(args, want, required)...)
		}
		problems = append(problems, o.load(a.Environ)...)
		problems = append(problems, o.checked()...)
		if len(problems) > 0 && o.more != nil && len(args) > 0 {
			problems = append(problems, o.more(args[0])...) // So that they need not be found one after the other.
		}
		if len(problems) > 0 {
			return &codeError{
				code: Usage, err: usage(c.CommandPath(), problems...), hint: c.CommandPath() + " --help lists what there is",
			}
		}
		if printConfig != nil && *printConfig {
			return o.print(a.Stdout)
		}
		gcfloor.Keep()
		ctx, stop := a.Signals()
		defer stop()
		return run(ctx, args)
	}
	return c
}

// Text is a flag of a command that was added: a text, what Set makes of one, or with YesNo a flag without a value.
type Text struct {
	Value      *string
	Set        func(text string) error // In place of Value: tells what is wrong with a text.
	YesNo      *bool                   // In place of Value.
	Arg, Usage string
	Short      string // One letter, or empty.
}

// Simple finishes a command of another package: its flags are by name, it takes no arguments, and what is wrong with how it was
// called is listed as for all others.
func (a *App) Simple(c *cobra.Command, flags map[string]Text, run func(context.Context) error) *cobra.Command {
	o := &options{}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		f := flags[name]
		var p *option
		switch {
		case f.YesNo != nil:
			p = o.yesNo(f.YesNo, name, f.Usage)
		case f.Set != nil:
			p = o.add(&option{
				key: name, usage: f.Usage, arg: f.Arg,
				set: func(t []string) error { return f.Set(last(t)) }, get: func() string { return "" },
			})
		default:
			p = o.text(f.Value, name, f.Arg, f.Usage)
		}
		p.flag, p.short = true, f.Short
	}
	return a.command(c, o, func(ctx context.Context, _ []string) error { return run(ctx) })
}

func argumentProblems(args, want []string, required int) []string {
	switch {
	case len(args) < required:
		return []string{"missing argument " + strings.Join(want[len(args):required], " ")}
	case len(args) > len(want) && !(len(want) > 0 && strings.HasSuffix(want[len(want)-1], "...")):
		return []string{fmt.Sprintf("unexpected argument %q", strings.Join(args[len(want):], " "))}
	}
	return nil
}

// execute runs the command that argv names and returns the exit code.
func (a *App) execute(root *cobra.Command, argv []string) int {
	for _, c := range a.commands {
		root.AddCommand(c(a))
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetArgs(argv)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &codeError{
			code: Usage, err: usage(c.CommandPath(), append(a.unknown, err.Error())...), hint: c.CommandPath() + " --help lists what there is",
		}
	})
	if root.HasSubCommands() {
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd(argv...)
		for _, c := range root.Commands() {
			if c.Name() == "completion" {
				a.group(c)
			}
		}
	}
	if len(argv) == 0 || !strings.HasPrefix(argv[0], cobra.ShellCompRequestCmd) {
		c, rest, err := root.Find(argv)
		if err != nil { // Cobra's own text has the usage in it.
			first := ""
			for _, s := range argv {
				if !strings.HasPrefix(s, "-") {
					first = s
					break
				}
			}
			return a.report(root.RunE(root, []string{first}))
		}
		a.unknown = unknownFlags(c, rest)
	}
	return a.report(root.Execute())
}

// report prints an error and returns the exit code.
func (a *App) report(err error) int {
	if err == nil {
		return Done
	}
	if errors.Is(err, context.Canceled) {
		err = &codeError{code: Failed, err: errors.New("interrupted")}
	}
	fmt.Fprintf(a.Stderr, "error: %v\n", err)
	var c *codeError
	if errors.As(err, &c) && c.hint != "" {
		fmt.Fprintln(a.Stderr, c.hint)
	}
	return codeOf(err)
}
