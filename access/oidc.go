package access

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// TokenOptions are the sources of tokens that an administrator configures by flags.
type TokenOptions struct {
	File string // of hashed tokens; empty: none
	OIDC OIDCOptions
}

// OIDCOptions name an OpenID Connect provider whose ID tokens are accepted.
type OIDCOptions struct {
	Issuer   string // URL; empty: none
	ClientID string // the audience of the tokens
	// UsernameClaim is the claim with the user's name (default sub), and GroupsClaim the
	// one with the groups (default none). The prefixes keep them apart from other users:
	// by default the name has the issuer before it.
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	CAFile                        string // of the provider; empty: the system's
	// ClientSecretFile and Scopes are for BrowserSignIn. A public client has no secret.
	ClientSecretFile string
	Scopes           []string // beside openid, for instance email and groups
}

// noPrefix as a prefix means none.
const noPrefix = "-"

// OpenTokens returns the authenticators of the options. They end with the context.
func OpenTokens(ctx context.Context, o TokenOptions, log *slog.Logger) (all []authenticator.Token, err error) {
	if o.File != "" {
		f, err := openTokenFile(o.File, log)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if o.OIDC.Issuer == "" {
		return all, nil
	}
	provider, err := openOIDC(ctx, o.OIDC)
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer-url: %w", err)
	}
	return append(all, provider), nil
}

func openOIDC(ctx context.Context, o OIDCOptions) (authenticator.Token, error) {
	if o.ClientID == "" {
		return nil, fmt.Errorf("--oidc-client-id is missing: it is the audience of the tokens")
	}
	prefix := o.UsernamePrefix
	prefix = cmp.Or(prefix, o.Issuer+"#")
	o.UsernameClaim = cmp.Or(o.UsernameClaim, "sub")
	mappings := apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: prefixOf(prefix)}}
	if o.GroupsClaim != "" {
		mappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: prefixOf(o.GroupsPrefix)}
	}
	options := oidc.Options{
		JWTAuthenticator: apiserver.JWTAuthenticator{
			Issuer: apiserver.Issuer{URL: o.Issuer, Audiences: []string{o.ClientID}}, ClaimMappings: mappings,
		},
		SupportedSigningAlgs: []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"},
	}
	var err error
	if options.Client, err = o.client(); err != nil {
		return nil, err
	}
	tokens, err := oidc.New(ctx, options)
	return outsiders{tokens}, err
}

// outsiders refuses what a provider must not decide: a user without a name, and names
// and groups of this server's own ("system:masters" may do everything).
type outsiders struct{ authenticator.Token }

func (o outsiders) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	response, ok, err := o.Token.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	for _, name := range append([]string{response.User.GetName()}, response.User.GetGroups()...) {
		if name == "" || strings.HasPrefix(name, "system:") {
			return nil, false, fmt.Errorf("the provider's token names %q: a name must not be empty or begin with %q", name, "system:")
		}
	}
	return response, true, nil
}

func prefixOf(text string) *string {
	if text == noPrefix {
		text = ""
	}
	return &text
}
