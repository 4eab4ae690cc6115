package server

import (
	"context"
	"crypto/x509"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/access/signing"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/console"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
)

// openAccess creates the default roles and reads all roles and bindings, so that the
// first request meets the same rules as every later one.
func (f *frontend) openAccess(ctx context.Context) (err error) {
	log := f.config.Logger
	f.directory = directory.New(f.store, log)
	writer := f.writer()
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
	if f.tokenKeys, err = serviceaccount.OpenKeys(ctx, writer, log, time.Now); err != nil {
		return err
	}
	further, err := access.OpenTokens(ctx, f.config.Tokens, log)
	if err != nil {
		return err
	}
	// The identity is opened later, before the first request.
	authorities := func() *x509.CertPool { return f.identity.ClientAuthorities() }
	f.door = access.NewDoor(f.directory, access.Config{Tokens: further, Authorities: authorities, ServiceAccounts: &serviceaccount.Authority{
		Keys: f.tokenKeys, Issuer: f.config.ServiceAccountIssuer, Account: f.directory.Account, Now: time.Now,
		UID: func(ctx context.Context, key object.Key) (types.UID, error) {
			o, err := f.store.Get(ctx, key)
			if object.Is(err, object.NotFound) {
				return "", nil
			}
			return o.UID, err
		},
	}})
	f.sessions = console.NewSessions(f.db, f.door.Reauthenticate, log)
	if oidc := f.config.Tokens.OIDC; oidc.Issuer != "" {
		if f.browsers, err = access.NewBrowserSignIn(oidc); err != nil {
			return err
		}
	}
	return nil
}

// writer writes objects of the access package.
func (f *frontend) writer() objects.Writer {
	return objects.Writer{Store: f.store, Kinds: f.kinds, Actor: "system:exeunt:access"}
}

// signer issues the certificates of approved requests.
func (f *frontend) signer() *signing.Signer {
	return &signing.Signer{
		Writer: f.writer(), Sign: f.identity.SignClient, Logger: f.config.Logger, Now: time.Now,
		// From the store: the directory may be a moment behind.
		User: func(ctx context.Context, name string) (types.UID, error) {
			o, err := f.store.Get(ctx, object.Key{Kind: kind.StorageName(v1.Users.Group, v1.Users.Resource), Name: name})
			if object.Is(err, object.NotFound) {
				return "", nil
			}
			return o.UID, err
		},
	}
}
