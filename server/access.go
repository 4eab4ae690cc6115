package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// addAccess builds the access control. It begins with the default roles and with all roles and bindings, so that
// the first request meets the same rules as every later one.
func (s *server) addAccess(ctx context.Context) error {
	log, writer := s.config.Logger, s.writer("access")
	s.directory = directory.New(s.store, log)
	s.tokenKeys = serviceaccount.NewKeys(writer, log, time.Now)
	if file := s.config.ServiceAccountKeys.Signing; file != "" {
		if err := s.tokenKeys.Use(file, s.config.ServiceAccountKeys.Verifying); err != nil {
			return fmt.Errorf("--service-account-signing-key-file and --service-account-key-file: %w", err)
		}
	}
	s.config.Tokens.Own = s.config.ServiceAccountIssuer
	further, err := access.OpenTokens(ctx, s.config.Tokens, log)
	if err != nil {
		return err
	}
	authorizers, err := access.OpenAuthorizers(s.config.AuthorizationConfig)
	if err != nil {
		return err
	}
	accounts := &serviceaccount.Authority{
		Keys: s.tokenKeys, Issuer: s.config.ServiceAccountIssuer, Account: s.directory.Account, Now: time.Now, UID: s.uid,
		Secret: func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
			stored, err := writer.Get(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), namespace, name)
			secret, _ := stored.(*corev1.Secret)
			return secret, err
		},
	}
	s.access = access.NewControl(s.directory, access.Config{
		Tokens: further, Authorizers: authorizers, Authorities: s.identity.ClientAuthorities, ServiceAccounts: accounts,
	})
	s.sessions = console.NewSessions(s.db, s.access.Reauthenticate, log)
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
			if s.config.NoControllers {
				return nil
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

// takeAuthority copies the certificate authority of all replicas (AuthorityDir) into the
// data directory, before the first use and after a rotation.
func takeAuthority(c Config) error {
	if c.AuthorityDir == "" {
		return nil
	}
	pki := filepath.Join(c.Data, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	if err := access.TakeAuthority(c.AuthorityDir, pki); err != nil {
		return fmt.Errorf("--authority-dir: %w", err)
	}
	return nil
}

// withConsole serves the console beside the API, on the same address: so the page
// reaches the API without a second origin.
func (s *server) withConsole() http.Handler {
	var images http.Handler
	address := ""
	if s.images != nil {
		images, address = s.images.images, s.images.listener.Addr().String()
	}
	// With the first request: it compresses its files, and no client waits for that at the start.
	page := sync.OnceValue(func() http.Handler {
		return console.New(console.Config{
			API: s.api, Registry: images, RegistryAddress: address, Limited: s.api.Limited, Sessions: s.sessions, OIDC: s.browsers, Throttle: s.access.Throttle(), Logger: s.config.Logger,
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == strings.TrimSuffix(console.Path, "/") || strings.HasPrefix(req.URL.Path, console.Path) {
			page().ServeHTTP(w, req)
			return
		}
		if req.URL.Path == console.LinkPath {
			req = console.WithCredential(req)
		}
		s.api.ServeHTTP(w, req)
	})
}

// renewEvery is how often the certificates are checked. They are replaced 31 days
// before they expire, so a few failures are harmless.
const renewEvery = time.Hour

// renewal keeps the serving and the administrator's certificate valid while the
// server runs.
type renewal struct {
	identity        *access.Identity
	kubeconfig, url string
	now             func() time.Time
	every           time.Duration
	log             *slog.Logger

	writePending bool // the kubeconfig must still be written; owned by run
}

func newRenewal(c Config, identity *access.Identity, l net.Listener) *renewal {
	return &renewal{
		identity: identity, kubeconfig: kubeconfig(c), url: "https://" + clientAddress(c.Listen, l),
		now: time.Now, every: cmp.Or(c.renewEvery, renewEvery), log: c.Logger,
	}
}

// run renews until the context ends. It logs a failure and retries after every.
func (r *renewal) run(ctx context.Context) error {
	for task.Sleep(ctx, r.every) {
		if err := r.renewOnce(); err != nil {
			r.log.Error("certificates could not be renewed; the next try is in "+r.every.String(), "error", err)
		}
	}
	return nil
}

func (r *renewal) renewOnce() error {
	serving, servingErr := r.identity.Renew(r.now())
	if serving {
		r.log.Info("the serving certificate was renewed")
	}
	admin, err := r.identity.RenewKubeconfig(r.kubeconfig, r.url, r.now())
	if r.writePending && err == nil && !admin {
		admin, err = true, r.identity.WriteKubeconfig(r.kubeconfig, r.url, r.now())
	}
	r.writePending = err != nil
	if admin && err == nil {
		r.log.Info("the administrator's certificate was renewed; copies of the kubeconfig end with the old one", "kubeconfig", r.kubeconfig)
	}
	_, _, brokerErr := r.identity.BrokerFiles(r.now())
	return errors.Join(servingErr, err, brokerErr)
}
