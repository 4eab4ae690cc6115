package main

import (
	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/access"
)

// addTokenFlags adds the flags of further sources of tokens, with kube-apiserver's names.
func addTokenFlags(f *pflag.FlagSet, o *access.TokenOptions) {
	f.StringVar(&o.File, "token-auth-file", "", "`FILE` of hashed bearer tokens, read again when it changes: lines of sha256:HEX,USER,UID,\"GROUP,GROUP\"")
	f.StringVar(&o.OIDC.Issuer, "oidc-issuer-url", "", "`URL` of an OpenID Connect provider whose ID tokens are accepted")
	f.StringVar(&o.OIDC.ClientID, "oidc-client-id", "", "client ID that the provider's tokens must be for")
	f.StringVar(&o.OIDC.UsernameClaim, "oidc-username-claim", "sub", "claim with the user's name")
	f.StringVar(&o.OIDC.UsernamePrefix, "oidc-username-prefix", "", "prefix of the user's name (default: the issuer and #; - is none)")
	f.StringVar(&o.OIDC.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups")
	f.StringVar(&o.OIDC.GroupsPrefix, "oidc-groups-prefix", "", "prefix of the groups")
	f.StringVar(&o.OIDC.CAFile, "oidc-ca-file", "", "`FILE` with the provider's certificate authority (default: the system's)")
	f.StringVar(&o.OIDC.ClientSecretFile, "oidc-client-secret-file", "", "`FILE` with the client's secret, for signing in to the console at the provider (default: none, a public client)")
	f.StringSliceVar(&o.OIDC.Scopes, "oidc-scopes", []string{"profile", "email"}, "`SCOPES` that the console asks the provider for, beside openid")
}
