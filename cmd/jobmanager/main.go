// Command jobmanager runs a JobManager.
package main

import (
	"os"

	"github.com/cairnstream/cairn/cli"
)

func main() { os.Exit(cli.New(nil).JobManager(os.Args[1:])) }
