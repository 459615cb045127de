package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/internal/gcfloor"
)

// Exit codes.
const (
	exitMissed = 1 // A bar was missed, or could not be measured.
	exitUsage  = 2
)

// config is what the flags say.
type config struct {
	runs    int    // Alternating runs of a comparison.
	self    string // This binary.
	dir     string // For everything that is written.
	verbose bool
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "jobmanager", "taskmanager": // A process of a cluster.
			os.Exit(cli.New(cairn.NewPrograms(programs()...)).Cairn(os.Args[1:]))
		case "receive": // The other end of the transport.
			if err := transportLoad.Receive(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "receive:", err)
				os.Exit(exitMissed)
			}
			return
		}
	}
	os.Exit(command())
}

// command is the whole of it but for child processes; it returns the exit code.
func command() int {
	gcfloor.Keep() // As every command does.
	var c config
	only := flag.String("bars", "", "bars to measure, comma separated (default: all)")
	list := flag.Bool("list", false, "list the bars and end")
	output := flag.String("o", "table", "table or json")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to that file")
	lenient := flag.Bool("lenient", false, "end with 0 though a bar was missed")
	flag.IntVar(&c.runs, "runs", 10, "alternating runs of each comparison, at least 6")
	flag.BoolVar(&c.verbose, "v", false, "print each run to standard error")
	flag.Parse()
	chosen, problems := choose(*only)
	if flag.NArg() > 0 {
		problems = append(problems, fmt.Sprintf("unexpected arguments: %s", strings.Join(flag.Args(), " ")))
	}
	if c.runs < 6 {
		problems = append(problems, "-runs: at least 6, for an interval of 95 %")
	}
	if *output != "table" && *output != "json" {
		problems = append(problems, "-o: table or json")
	}
	if len(problems) > 0 {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, "bars:", p)
		}
		return exitUsage
	}
	if *list {
		for _, b := range bars {
			fmt.Printf("%-12s %s\n", b.name, b.what)
		}
		return 0
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bars:", err)
			return exitMissed
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			fmt.Fprintln(os.Stderr, "bars:", err)
			return exitMissed
		}
		defer pprof.StopCPUProfile()
	}
	rep, err := measureAll(c, chosen, *output == "table")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		return exitMissed
	}
	if *output == "json" {
		if err := rep.json(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bars:", err)
			return exitMissed
		}
	} else {
		rep.summary(os.Stdout)
	}
	if rep.missed() > 0 && !*lenient {
		return exitMissed
	}
	return 0
}

// choose picks bars by name.
func choose(names string) (chosen []bar, problems []string) {
	if names == "" {
		return bars, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(bars, func(b bar) bool { return b.name == name })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("-bars: there is no bar %q; -list prints all", name))
			continue
		}
		chosen = append(chosen, bars[i])
	}
	return chosen, problems
}

// measureAll measures the chosen bars, in order, and prints each as it comes if told so.
func measureAll(c config, chosen []bar, show bool) (*report, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if c.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find the own executable: %w", err)
	}
	if c.dir, err = os.MkdirTemp("", "cairn-bars-"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(c.dir) }() // Nothing to do about what cannot be removed.
	rep := &report{Machine: machine()}
	if show {
		rep.head(os.Stdout)
	}
	for _, b := range chosen {
		cores := runtime.GOMAXPROCS(0)
		figures, err := b.measure(ctx, c)
		runtime.GOMAXPROCS(cores)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			figures = append(figures, figure{Bar: b.name, What: b.what, Failed: err.Error()})
		}
		for i := range figures {
			figures[i].Bar = b.name
			figures[i].judge()
			if show {
				figures[i].row(os.Stdout)
			}
		}
		rep.Figures = append(rep.Figures, figures...)
	}
	rep.Machine.LoadAfter = loadAverage()
	return rep, nil
}
