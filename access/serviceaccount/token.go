// Package serviceaccount issues and verifies the tokens of ServiceAccounts: JWTs as
// Kubernetes has them, signed by keys that all replicas share (keys.go). It does not
// decide what their holders may do.
//
// A token is for its audiences, ends at its expiry, and dies with the ServiceAccount and
// with the Pod, Secret or Node that it is bound to: their uids are compared at every use,
// from memory or at most a second old.
package serviceaccount

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apiserver "k8s.io/apiserver/pkg/authentication/serviceaccount"
	library "k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/exeunt/exeunt/object"
)

const (
	// MinLife, DefaultLife and MaxLife bound the life of a token. A request for more
	// than MaxLife gets MaxLife.
	MinLife     = 10 * time.Minute
	DefaultLife = time.Hour
	MaxLife     = 30 * 24 * time.Hour
)

// Authority issues and verifies tokens. It is safe for concurrent use.
type Authority struct {
	Keys   *Keys
	Issuer string
	// Account returns the uid of a ServiceAccount, or "", from memory.
	Account func(namespace, name string) types.UID
	// UID returns the uid of an object, or "".
	UID func(ctx context.Context, key object.Key) (types.UID, error)
	// Secret returns a Secret, for tokens of Secrets. Error: NotFound. Nil if their tokens are not known.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Now    func() time.Time
}

// Bound is the object that a token dies with.
type Bound struct {
	Kind string // "Pod", "Secret" or "Node"
	Name string
	UID  types.UID
}

// private are the claims that Kubernetes adds.
type private struct {
	Kubernetes claims `json:"kubernetes.io"`
}

type claims struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount ref    `json:"serviceaccount"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	Node           *ref   `json:"node,omitempty"`
}

type ref struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// Issue signs a token for a ServiceAccount.
func (a *Authority) Issue(namespace string, account Bound, audiences []string, life time.Duration, bound *Bound) (token string, expires time.Time, err error) {
	now := a.Now().Truncate(time.Second)
	expires = now.Add(min(life, MaxLife))
	public := jwt.Claims{
		Issuer: a.Issuer, Subject: apiserver.MakeUsername(namespace, account.Name), Audience: audiences, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expires),
	}
	own := private{Kubernetes: claims{Namespace: namespace, ServiceAccount: ref{account.Name, account.UID}}}
	if bound != nil {
		to := &ref{bound.Name, bound.UID}
		switch bound.Kind {
		case "Pod":
			own.Kubernetes.Pod = to
		case "Secret":
			own.Kubernetes.Secret = to
		case "Node":
			own.Kubernetes.Node = to
		}
	}
	token, err = a.Keys.Sign(public, own)
	return token, expires, err
}

// The errors of a token that this authority signed. They tell the client nothing that it
// does not have.
var (
	errExpired  = errors.New("the token has expired")
	errAudience = errors.New("the token is for another audience")
	errRevoked  = errors.New("the token's ServiceAccount, or the object that it is bound to, is gone")
)

// AuthenticateToken verifies a token. Tokens of other issuers and keys are not known.
func (a *Authority) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var public jwt.Claims
	var own private
	var old legacy
	if _, ok := a.Keys.Verify(token, &public, &own, &old); ok && public.Issuer == library.LegacyIssuer && a.Secret != nil {
		return a.authenticateSecret(ctx, token, old)
	} else if !ok || public.Issuer != a.Issuer {
		return nil, false, nil
	}
	if now := a.Now(); public.Expiry == nil || now.After(public.Expiry.Time()) || public.NotBefore != nil && now.Before(public.NotBefore.Time().Add(-10*time.Second)) {
		return nil, false, errExpired
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = authenticator.Audiences{a.Issuer}
	}
	common := wanted.Intersect(authenticator.Audiences(public.Audience))
	if len(common) == 0 {
		return nil, false, errAudience
	}
	if err := a.alive(ctx, own.Kubernetes); err != nil {
		return nil, false, err
	}
	c := own.Kubernetes
	info := apiserver.ServiceAccountInfo{
		Namespace: c.Namespace, Name: c.ServiceAccount.Name, UID: string(c.ServiceAccount.UID), CredentialID: "JTI=" + public.ID,
	}
	if c.Pod != nil {
		info.PodName, info.PodUID = c.Pod.Name, string(c.Pod.UID)
	}
	if c.Node != nil {
		info.NodeName, info.NodeUID = c.Node.Name, string(c.Node.UID)
	}
	return &authenticator.Response{User: info.UserInfo(), Audiences: common}, true, nil
}

// legacy are the claims of a token in a Secret.
type legacy struct {
	Namespace string    `json:"kubernetes.io/serviceaccount/namespace"`
	Name      string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Secret    string    `json:"kubernetes.io/serviceaccount/secret.name"`
}

// GenerateToken signs the token of a Secret. It has no expiry: it dies with its Secret and its ServiceAccount.
func (a *Authority) GenerateToken(_ context.Context, public *jwt.Claims, private any) (string, error) {
	public.Issuer = library.LegacyIssuer
	return a.Keys.Sign(private, public)
}

// authenticateSecret verifies the token of a Secret, whose signature is good: the Secret has it, for a ServiceAccount that exists.
func (a *Authority) authenticateSecret(ctx context.Context, token string, c legacy) (*authenticator.Response, bool, error) {
	audiences, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		audiences = authenticator.Audiences{a.Issuer}
	}
	if audiences = audiences.Intersect(authenticator.Audiences{a.Issuer}); len(audiences) == 0 {
		return nil, false, errAudience
	}
	if err := a.alive(ctx, claims{Namespace: c.Namespace, ServiceAccount: ref{c.Name, c.UID}}); err != nil {
		return nil, false, err
	}
	secret, err := a.Secret(ctx, c.Namespace, c.Secret)
	if err != nil && !object.Is(err, object.NotFound) {
		return nil, false, err
	}
	if secret == nil || secret.DeletionTimestamp != nil || subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 0 {
		return nil, false, errRevoked
	}
	return &authenticator.Response{User: apiserver.UserInfo(c.Namespace, c.Name, string(c.UID)), Audiences: audiences}, true, nil
}

// Expires reads the expiry of a signed token that was verified before. Zero if it has none, or is not such a token.
func Expires(token string) time.Time {
	var claims jwt.Claims
	parsed, err := jwt.ParseSigned(token)
	if err != nil || parsed.UnsafeClaimsWithoutVerification(&claims) != nil || claims.Expiry == nil {
		return time.Time{}
	}
	return claims.Expiry.Time()
}

// alive checks that the token's objects exist, with the same uids.
func (a *Authority) alive(ctx context.Context, c claims) error {
	if c.ServiceAccount.UID == "" || a.Account(c.Namespace, c.ServiceAccount.Name) != c.ServiceAccount.UID {
		return errRevoked
	}
	for _, b := range []struct {
		to  *ref
		key object.Key
	}{
		{c.Pod, object.Key{Kind: object.Pods, Namespace: c.Namespace}},
		{c.Secret, object.Key{Kind: object.Secrets, Namespace: c.Namespace}},
		{c.Node, object.Key{Kind: "nodes"}},
	} {
		if b.to == nil {
			continue
		}
		b.key.Name = b.to.Name
		uid, err := a.UID(ctx, b.key)
		if err != nil {
			return err
		}
		if uid == "" || uid != b.to.UID {
			return errRevoked
		}
	}
	return nil
}

// JWKS returns the public keys.
func (a *Authority) JWKS() jose.JSONWebKeySet {
	var set jose.JSONWebKeySet
	for _, k := range *a.Keys.set.Load() {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.id, Algorithm: string(k.algorithm), Use: "sig"})
	}
	return set
}

// algorithms are those of the keys.
func (a *Authority) algorithms() (all []string) {
	for _, k := range *a.Keys.set.Load() {
		all = append(all, string(k.algorithm))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The paths of the OpenID discovery.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/openid/v1/jwks"
)

// ServeHTTP serves the discovery document and the keys, for other servers that verify
// tokens of this one.
func (a *Authority) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var answer any
	switch {
	case !slices.Contains([]string{http.MethodGet, http.MethodHead}, req.Method):
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	case req.URL.Path == JWKSPath:
		w.Header().Set("Content-Type", "application/jwk-set+json")
		answer = a.JWKS()
	default:
		w.Header().Set("Content-Type", "application/json")
		answer = map[string]any{
			"issuer": a.Issuer, "jwks_uri": "https://" + req.Host + JWKSPath,
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": a.algorithms(),
		}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, "encode keys", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(data)
}
