package server

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/access/signing"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/console"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// addAccess builds the front door. It opens with the default roles and with all roles and bindings, so that
// the first request meets the same rules as every later one.
func (s *server) addAccess(ctx context.Context) error {
	log, writer := s.config.Logger, s.writer("access")
	s.directory = directory.New(s.store, log)
	s.tokenKeys = serviceaccount.NewKeys(writer, log, time.Now)
	further, err := access.OpenTokens(ctx, s.config.Tokens, log)
	if err != nil {
		return err
	}
	s.door = access.NewDoor(s.directory, access.Config{Tokens: further, Authorities: s.identity.ClientAuthorities, ServiceAccounts: &serviceaccount.Authority{
		Keys: s.tokenKeys, Issuer: s.config.ServiceAccountIssuer, Account: s.directory.Account, Now: time.Now, UID: s.uid,
	}})
	s.sessions = console.NewSessions(s.db, s.door.Reauthenticate, log)
	if oidc := s.config.Tokens.OIDC; oidc.Issuer != "" {
		if s.browsers, err = access.NewBrowserSignIn(oidc); err != nil {
			return err
		}
	}
	aggregator := &policy.Aggregator{Directory: s.directory, Writer: writer, Logger: log}
	defaults := &serviceaccount.Defaults{Writer: writer, CA: s.identity.AuthorityPEM(), Retired: s.identity.RetiredPEM(), Logger: log}
	signer := &signing.Signer{Writer: writer, Sign: s.identity.SignClient, Logger: log, Now: time.Now, User: func(ctx context.Context, name string) (types.UID, error) {
		// From the store: the directory may be a moment behind.
		return s.uid(ctx, object.Key{Kind: kind.StorageName(v1.Users.Group, v1.Users.Resource), Name: name})
	}}
	s.add(part{
		name: "access", handlers: map[string]http.Handler{console.LinkPath: s.sessions.LinkHandler()},
		open: func(ctx context.Context) error {
			if err := s.directory.Load(ctx); err != nil {
				return err
			}
			if err := policy.Reconcile(ctx, writer, s.directory.Roles().Objects(), log); err != nil {
				return err
			}
			if err := s.directory.Load(ctx); err != nil {
				return err
			}
			if err := s.tokenKeys.Load(ctx); err != nil {
				return err
			}
			// The system namespaces are complete before the first client sees them.
			return defaults.Ensure(ctx, systemNamespaces...)
		},
		tasks: []task.Task{
			{Name: "access", Run: s.directory.Run}, {Name: "role-aggregation", Run: aggregator.Run}, {Name: "console-sessions", Run: s.sessions.Run},
			{Name: "token-keys", Run: s.tokenKeys.Run}, {Name: "service-accounts", Run: defaults.Run}, {Name: "signing", Run: signer.Run},
		},
	})
	return nil
}

// uid returns the uid of an object, or "" if there is none.
func (s *server) uid(ctx context.Context, key object.Key) (types.UID, error) {
	o, err := s.store.Get(ctx, key)
	if object.Is(err, object.NotFound) {
		return "", nil
	}
	return o.UID, err
}
