package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

// RunEphemeral runs a server whose data goes with the process, unless --data names a directory,
// and the process with its parent.
func RunEphemeral(ctx context.Context, c Config) (err error) {
	isDefault := func(name string) bool {
		return slices.ContainsFunc(c.Settings, func(s Setting) bool { return s.Name == name && s.Source == "default" })
	}
	if isDefault("listen") {
		c.Listen = "127.0.0.1:0"
	}
	if isDefault("registry-listen") {
		c.RegistryListen = "127.0.0.1:0"
	}
	if isDefault("data") {
		if c.Data, err = os.MkdirTemp("", "exeunt-"); err != nil {
			return fmt.Errorf("make data directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.Data)) }()
	}
	return Run(WithParent(ctx), c)
}

// parentEvery is how often WithParent looks. No system tells a process that its parent has
// ended: Linux tells the end of the thread that started it, which may end before the parent.
const parentEvery = 100 * time.Millisecond

// WithParent returns a context that ends when the parent of this process ends. On Windows,
// where a process keeps the id of its parent, it never does.
func WithParent(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		for task.Sleep(ctx, parentEvery) && os.Getppid() == parent {
		}
	}()
	return ctx
}
