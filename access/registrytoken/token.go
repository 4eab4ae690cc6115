// Package registrytoken issues and verifies the tokens of the OCI registry, as docker's
// token authentication has them: a client logs in at the token endpoint, names scopes,
// and gets a signed token that carries those of them that it may use.
//
// A token is for the registry alone (its audience), and the API's tokens are not for the
// registry. An access token lives for five minutes. It names its holder; whether the
// holder still exists and what it may do is asked with every request, by the caller of
// Verify. A refresh token asks for access tokens, for thirty days at most, and does
// nothing else. docker stores it once and uses it many times, so it is no one-time token.
//
// The package does not know roles: a Grant function decides. Begin with Endpoint.
package registrytoken

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apimachinery/pkg/util/cache"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

const (
	// Service is the audience of the tokens, the same on all replicas.
	Service = "exeunt-registry"

	accessLife  = 5 * time.Minute
	refreshLife = 30 * 24 * time.Hour // not longer than a signing key is kept: serviceaccount.MaxLife
	// maxCached bounds the verified tokens that are remembered: a few megabytes.
	maxCached = 4096
	// maxToken bounds a token: one of maxScopes scopes with the longest names is smaller.
	maxToken = 32 << 10
)

// Holder is the client that a token stands for.
type Holder struct {
	Name   string   `json:"name"`
	UID    string   `json:"uid,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Credential identifies the password that the client logged in with, if the server can
	// ask later whether it is still good: the token ends with it.
	Credential string `json:"credential,omitempty"`
	// Anonymous: the client did not log in.
	Anonymous bool `json:"anonymous,omitempty"`
	// Expires is when the credential ends; zero means never, or not known.
	Expires time.Time `json:"-"`
}

// The uses of a token.
const (
	forAccess  = "access"
	forRefresh = "refresh"
)

// private are our claims. A token of the API has none of them.
type private struct {
	Use    string   `json:"exeunt.dev/use"`
	Holder Holder   `json:"exeunt.dev/holder"`
	Access []Access `json:"access,omitempty"`
}

// Token is a verified access token. It is immutable.
type Token struct {
	Holder Holder
	access []Access
	key    string // id of the key that signed it
	ends   time.Time
}

// Allows reports whether the token carries an action.
func (t *Token) Allows(typ, name, action string) bool {
	return slices.ContainsFunc(t.access, func(a Access) bool {
		return a.Type == typ && a.Name == name && slices.Contains(a.Actions, action)
	})
}

// Keys sign and verify JWTs.
type Keys interface {
	Sign(claims ...any) (string, error)
	Verify(token string, claims ...any) (key string, ok bool)
	Known(key string) bool
}

// Authority issues and verifies tokens. It is safe for concurrent use.
type Authority struct {
	keys   Keys
	issuer string
	now    func() time.Time
	cache  *cache.LRUExpireCache // [32]byte, the hash of a token, to *Token
}

// New returns an authority. Replicas that share keys and issuer accept each other's
// tokens.
func New(keys Keys, issuer string, now func() time.Time) *Authority {
	return &Authority{keys: keys, issuer: issuer, now: now, cache: cache.NewLRUExpireCache(maxCached)}
}

// Issue signs an access token.
func (a *Authority) Issue(h Holder, access []Access) (token string, expires time.Time, err error) {
	return a.sign(h, private{Use: forAccess, Holder: h, Access: access}, accessLife)
}

// IssueRefresh signs a refresh token.
func (a *Authority) IssueRefresh(h Holder) (string, error) {
	token, _, err := a.sign(h, private{Use: forRefresh, Holder: h}, refreshLife)
	return token, err
}

func (a *Authority) sign(h Holder, own private, life time.Duration) (string, time.Time, error) {
	now := a.now().Truncate(time.Second)
	expires := now.Add(life)
	if !h.Expires.IsZero() && h.Expires.Before(expires) {
		expires = h.Expires.Truncate(time.Second)
	}
	public := jwt.Claims{
		Issuer: a.issuer, Subject: h.Name, Audience: jwt.Audience{Service}, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expires),
	}
	token, err := a.keys.Sign(public, own)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a registry token: %w", err)
	}
	return token, expires, nil
}

// The errors of Verify. ErrExpired: the token was good, so the client did not guess.
var (
	ErrUnknown = errors.New("the token is not one of this registry")
	ErrExpired = errors.New("the token has expired")
)

// Verify reads an access token. A signature costs 0.1 ms, so its result is remembered
// until the token or its key ends.
func (a *Authority) Verify(token string) (*Token, error) {
	hash := sha256.Sum256([]byte(token))
	if found, ok := a.cache.Get(hash); ok {
		if t, _ := found.(*Token); t != nil && a.keys.Known(t.key) && a.now().Before(t.ends) {
			return t, nil
		}
	}
	own, key, ends, err := a.verify(token, forAccess)
	if err != nil {
		return nil, err
	}
	t := &Token{Holder: own.Holder, access: own.Access, key: key, ends: ends}
	a.cache.Add(hash, t, ends.Sub(a.now()))
	return t, nil
}

// Refresh reads a refresh token.
func (a *Authority) Refresh(token string) (Holder, error) {
	own, _, ends, err := a.verify(token, forRefresh)
	if err != nil {
		return Holder{}, err
	}
	own.Holder.Expires = ends
	return own.Holder, nil
}

func (a *Authority) verify(token, use string) (own private, key string, ends time.Time, err error) {
	var public jwt.Claims
	if len(token) > maxToken {
		return own, "", ends, ErrUnknown
	}
	key, ok := a.keys.Verify(token, &public, &own)
	if !ok || public.Issuer != a.issuer || !slices.Equal(public.Audience, jwt.Audience{Service}) || own.Use != use || public.Expiry == nil {
		return private{}, "", ends, ErrUnknown
	}
	if ends = public.Expiry.Time(); !a.now().Before(ends) {
		return private{}, "", ends, ErrExpired
	}
	return own, key, ends, nil
}

// The actions on a repository, and the one on the catalog.
const (
	Pull   = "pull"
	Push   = "push"
	Delete = "delete"
	Any    = "*"
)

// The bounds of a request for a token. docker asks for two scopes at most: its own and
// the source of a mount.
const (
	maxScopes  = 32
	maxActions = 8
	maxScope   = 512 // bytes; the longest path has 255
)

// Access is what a token allows on one resource, in the form of distribution's tokens.
type Access struct {
	Type    string   `json:"type"` // "repository" or "registry"
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// String returns the scope: TYPE:NAME:ACTION,ACTION.
func (a Access) String() string { return a.Type + ":" + a.Name + ":" + strings.Join(a.Actions, ",") }

var errScope = errors.New("want TYPE:NAME:ACTION,…, for instance repository:shop/web:pull,push")

// ParseScopes reads the scopes that a client asks for: each value has one or several,
// separated by a space. It is strict: a scope that two readers could understand
// differently is refused, so that a token never names a repository that the router would
// not. Types and actions that this registry does not have are left out. Scopes of the
// same resource become one. "*" asks for all actions.
func ParseScopes(values []string) ([]Access, error) {
	var all []Access
	n := 0
	for _, value := range values {
		if value == "" {
			continue
		}
		for scope := range strings.SplitSeq(value, " ") {
			if n++; n > maxScopes {
				return nil, fmt.Errorf("more than %d scopes", maxScopes)
			}
			one, err := parseScope(scope)
			if err != nil {
				return nil, fmt.Errorf("scope %.100q: %w", scope, err)
			}
			if len(one.Actions) > 0 {
				all = merge(all, one)
			}
		}
	}
	return all, nil
}

func parseScope(scope string) (Access, error) {
	if len(scope) > maxScope {
		return Access{}, fmt.Errorf("longer than %d bytes", maxScope)
	}
	parts := strings.Split(scope, ":")
	if len(parts) != 3 {
		return Access{}, errScope
	}
	a := Access{Type: parts[0], Name: parts[1]}
	asked := strings.Split(parts[2], ",")
	if len(asked) > maxActions {
		return Access{}, fmt.Errorf("more than %d actions", maxActions)
	}
	for _, action := range asked {
		if action != Any && !lowerCase(action) {
			return Access{}, errScope
		}
	}
	switch {
	case a.Type == "repository":
		if !v1.ValidPath(a.Name) {
			return Access{}, errors.New("not a repository name")
		}
		a.Actions = known(asked, Pull, Push, Delete)
	case a.Type == "registry" && a.Name == "catalog":
		if slices.Contains(asked, Any) {
			a.Actions = []string{Any}
		}
	case !lowerCase(strings.TrimSuffix(a.Type, "(plugin)")) || a.Name == "":
		return Access{}, errScope
	}
	return a, nil
}

// known returns those of the actions that were asked for, in their own order.
func known(asked []string, actions ...string) []string {
	return slices.DeleteFunc(actions, func(action string) bool {
		return !slices.Contains(asked, action) && !slices.Contains(asked, Any)
	})
}

func merge(all []Access, one Access) []Access {
	i := slices.IndexFunc(all, func(a Access) bool { return a.Type == one.Type && a.Name == one.Name })
	if i < 0 {
		return append(all, one)
	}
	for _, action := range one.Actions {
		if !slices.Contains(all[i].Actions, action) {
			all[i].Actions = append(all[i].Actions, action)
		}
	}
	return all
}

func lowerCase(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}
