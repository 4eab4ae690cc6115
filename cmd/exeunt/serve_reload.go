package main

import (
	"context"
	"encoding/csv"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/server"
)

// runServer is server.Run with reloads by SIGHUP, if there is a file to read. Without one
// SIGHUP ends the server, as when its terminal closes.
func runServer(ctx context.Context, c server.Config) error {
	if slices.ContainsFunc(c.Settings, func(s server.Setting) bool { return s.Name == configFlag && s.Value != "" }) {
		var stop func()
		c.Reload, stop = notifyReload()
		defer stop()
	}
	return server.Run(ctx, c)
}

// notifyReload returns a channel that gets a value after each SIGHUP, until stop is
// called. Signals that come before the value is taken become one.
func notifyReload() (reload <-chan struct{}, stop func()) {
	signals, ended, reloads := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
			}
			select {
			case reloads <- struct{}{}:
			default: // one is waiting, and will read the newest file
			}
		}
	}()
	return reloads, func() { signal.Stop(signals); close(ended) }
}

// givenFlags returns the flags of the command line, in the form that their Set reads.
func givenFlags(flags *pflag.FlagSet) map[string]string {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		text := f.Value.String()
		switch value := f.Value.(type) {
		case pflag.SliceValue:
			text = commaSeparated(value.GetSlice())
		default:
			if f.Value.Type() == "stringToString" {
				text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
			}
		}
		given[f.Name] = text
	})
	return given
}

// commaSeparated joins values as repeatable flags read them.
func commaSeparated(values []string) string {
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(values) // a Builder does not fail
	w.Flush()
	return strings.TrimSuffix(line.String(), "\n")
}

// readConfig returns the configuration that a server would have that starts now with these
// flags: it reads environment and file.
func readConfig(ctx context.Context, given map[string]string) (c server.Config, err error) {
	serve := newServe(func(_ context.Context, read server.Config) error {
		c = read
		return nil
	})
	serve.SetContext(ctx)
	for name, text := range given {
		if err := serve.Flags().Set(name, text); err != nil {
			return c, err
		}
	}
	return c, serve.RunE(serve, nil)
}
