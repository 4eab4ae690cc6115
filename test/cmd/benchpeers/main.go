// Command benchpeers puts the same load on our server, on SQLite and on PostgreSQL, and on the
// programs that people compare it with: kube-apiserver with etcd and kube-controller-manager, and
// the registry of the distribution project. It takes turns, and writes one table of medians
// and ratios. script/bench-peers builds the programs and starts PostgreSQL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	var r runner
	flag.StringVar(&r.exeunt, "exeunt", "bin/exeunt", "the program")
	flag.StringVar(&r.bin, "peers", "", "directory of the other programs: what script/kubernetes prints")
	flag.StringVar(&r.postgres, "postgres", "", "URL of a PostgreSQL server on which databases can be created (default: SQLite only)")
	flag.IntVar(&r.rounds, "rounds", 3, "how often each server is measured")
	flag.IntVar(&r.objects, "objects", 10_000, "objects of each workload")
	flag.BoolVar(&r.registryOnly, "registry-only", false, "measure the registries only")
	flag.BoolVar(&r.apiOnly, "api-only", false, "measure the API servers only")
	out := flag.String("out", "", "file for the table (default: standard output)")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &r, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, r *runner, out string) (err error) {
	if r.dir, err = os.MkdirTemp("", "exeunt-benchpeers-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	table, err := r.run(ctx)
	if err != nil {
		return err
	}
	var to io.Writer = os.Stdout
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		to = io.MultiWriter(os.Stdout, file)
	}
	return table.write(to, r)
}
