// Package cli is the command line: flags, variables and files become a configuration, and that goes to package serve or
// to a JobManager.
//
// Start reading at App (app.go), which every main uses. options.go is how a setting is found in its four places and how
// all that is wrong is listed at once; each command has a file named after it. output.go prints tables, JSON and YAML;
// view.go is the shape of the latter two, which scripts rely on.
//
// Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 3 not
// found, 4 not reachable, 5 refused by a check. A name that is running already is refused (5): nothing was changed, and
// it may work later. A job that fails because its input can never work, such as an output directory that holds somebody
// else's results, is wrong usage (2).
package cli
