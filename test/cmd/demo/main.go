// Command demo shows one deletion from beginning to end; see package demo. It needs only
// the two programs, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/test/demo"
)

func main() {
	exeunt := flag.String("exeunt", "bin/exeunt", "the program")
	kubectl := flag.String("kubectl", "kubectl", "kubectl")
	examples := flag.String("examples", "examples/shop", "directory of the shop")
	database := flag.String("database", "", "what serve --database takes, an empty database (default: SQLite in a temporary directory)")
	pace := flag.Duration("pace", 2*time.Second, "how long to pause where there is something to read")
	keep := flag.Bool("keep", false, "leave the server running after the story, until Ctrl-C")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // the demo reports what matters as its own error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, demo.Config{Exeunt: *exeunt, Kubectl: *kubectl, Examples: *examples, Database: *database, Pace: *pace, Keep: *keep, Out: os.Stdout})
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run gives the demo a temporary directory and removes it afterwards.
func run(ctx context.Context, c demo.Config) (err error) {
	for _, path := range []*string{&c.Exeunt, &c.Kubectl, &c.Examples} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if c.Dir, err = os.MkdirTemp("", "exeunt-demo-"); err != nil {
		return err
	}
	_, err = demo.Run(ctx, c)
	return errors.Join(err, os.RemoveAll(c.Dir))
}
