// Command cluster runs our server with the real kube-controller-manager, kube-scheduler and
// kwok, and shows deletions among five hundred pods; see RunCluster in package demo. It leaves
// nothing behind.
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
	bin := flag.String("peers", "", "directory of the Kubernetes programs: what script/kubernetes prints")
	database := flag.String("database", "", "what serve --database takes, an empty database (default: SQLite in a temporary directory)")
	pace := flag.Duration("pace", time.Second, "how long to pause where there is something to read")
	keep := flag.Bool("keep", false, "leave the cluster running after the story, until Ctrl-C")
	logs := flag.String("logs", "", "directory that keeps logs and data (default: a temporary one that is removed)")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // the story reports what matters as its own error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, demo.Config{Exeunt: *exeunt, Kubectl: *kubectl, Database: *database, Dir: *logs, Pace: *pace, Keep: *keep, Out: os.Stdout}, *bin)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted && err == nil && *keep:
	case interrupted:
		fmt.Fprintln(os.Stderr, "cluster: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run gives the story a temporary directory, if it has none, and removes it afterwards.
func run(ctx context.Context, c demo.Config, bin string) (err error) {
	for _, path := range []*string{&c.Exeunt, &c.Kubectl} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if c.Dir != "" {
		if c.Dir, err = filepath.Abs(c.Dir); err != nil {
			return err
		}
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return err
		}
		c.Examples = c.Dir
		return demo.RunCluster(ctx, c, bin)
	}
	if c.Dir, err = os.MkdirTemp("", "exeunt-cluster-"); err != nil {
		return err
	}
	c.Examples = c.Dir
	err = demo.RunCluster(ctx, c, bin)
	return errors.Join(err, os.RemoveAll(c.Dir))
}
