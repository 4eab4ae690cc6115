package server

import (
	"context"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/objects"
	"github.com/exeunt/exeunt/access/policy"
)

// openAccess creates the default roles and reads all roles and bindings, so that the
// first request meets the same rules as every later one.
func (f *frontend) openAccess(ctx context.Context) error {
	log := f.config.Logger
	f.directory = directory.New(f.store, log)
	writer := objects.Writer{Store: f.store, Kinds: f.kinds, Actor: "system:exeunt:access"}
	if err := f.directory.Load(ctx); err != nil {
		return err
	}
	if err := policy.Reconcile(ctx, writer, f.directory.Roles().Objects(), log); err != nil {
		return err
	}
	if err := f.directory.Load(ctx); err != nil {
		return err
	}
	f.aggregator = &policy.Aggregator{Directory: f.directory, Writer: writer, Logger: log}
	f.door = access.NewDoor(f.directory, access.Config{})
	return nil
}
