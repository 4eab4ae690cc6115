package access

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/exeunt/exeunt/internal/inflight"
)

// configured opens the issuers of an AuthenticationConfiguration, as kube-apiserver has it:
// several, with claims in CEL. tokenIssuer is this server's own.
func configured(ctx context.Context, file, tokenIssuer string) (all []authenticator.Token, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("want an AuthenticationConfiguration, not %T", decoded)
	}
	if config.Anonymous != nil {
		return nil, fmt.Errorf("anonymous: remove it, anonymous clients always reach the public paths only")
	}
	compiler := authenticationcel.NewDefaultCompiler()
	if err := validation.ValidateAuthenticationConfiguration(compiler, config, []string{tokenIssuer}).ToAggregate(); err != nil {
		return nil, err
	}
	for _, jwt := range config.JWT {
		client, err := providerClient([]byte(jwt.Issuer.CertificateAuthority))
		if err != nil {
			return nil, err
		}
		issuer, err := newIssuer(ctx, jwt, client)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", jwt.Issuer.URL, err)
		}
		all = append(all, issuer)
	}
	return all, nil
}

// Authorizers are those of an AuthorizationConfiguration, in its order.
type Authorizers struct {
	// named has "rbac" without an authorizer: Control has that.
	named []authorizerunion.NamedAuthorizer
}

// OpenAuthorizers reads an AuthorizationConfiguration, as kube-apiserver has it: webhooks before
// and after RBAC, which must be there. Empty: RBAC only.
func OpenAuthorizers(file string) (*Authorizers, error) {
	if file == "" {
		return &Authorizers{named: []authorizerunion.NamedAuthorizer{{AuthorizerName: "rbac"}}}, nil
	}
	config, err := load.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("--authorization-config: %w", err)
	}
	compiler := authorizationcel.NewDefaultCompiler()
	if err := validation.ValidateAuthorizationConfiguration(compiler, nil, config, sets.New("RBAC", "Webhook"), sets.New("Webhook")).ToAggregate(); err != nil {
		return nil, fmt.Errorf("--authorization-config: %w", err)
	}
	all, rbac := &Authorizers{}, false
	for _, c := range config.Authorizers {
		named := authorizerunion.NamedAuthorizer{AuthorizerName: c.Name}
		if c.Type == apiserver.TypeWebhook {
			if named.Authorizer, err = newWebhook(c, compiler); err != nil {
				return nil, fmt.Errorf("--authorization-config: %s: %w", c.Name, err)
			}
		} else {
			rbac = true
		}
		all.named = append(all.named, named)
	}
	if !rbac {
		return nil, fmt.Errorf("--authorization-config: an authorizer of type RBAC is missing: the parts of this server need their roles")
	}
	return all, nil
}

func newWebhook(c apiserver.AuthorizerConfiguration, compiler authorizationcel.Compiler) (authorizer.Authorizer, error) {
	if c.Webhook.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
		return nil, fmt.Errorf("connectionInfo.type: only %s can be used", apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile)
	}
	client, err := webhookutil.LoadKubeconfig(*c.Webhook.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	client.Timeout = c.Webhook.Timeout.Duration
	client.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return inflight.Answers{RoundTripper: next, Most: providerAnswer}
	})
	onError := authorizer.DecisionDeny
	if c.Webhook.FailurePolicy == apiserver.FailurePolicyNoOpinion {
		onError = authorizer.DecisionNoOpinion
	}
	allowed, denied := c.Webhook.AuthorizedTTL.Duration, c.Webhook.UnauthorizedTTL.Duration
	if !c.Webhook.CacheAuthorizedRequests {
		allowed = 0
	}
	if !c.Webhook.CacheUnauthorizedRequests {
		denied = 0
	}
	return webhook.New(client, c.Webhook.SubjectAccessReviewVersion, allowed, denied, *webhook.DefaultRetryBackoff(), onError, c.Webhook.MatchConditions, c.Name, metrics.NoopAuthorizerMetrics{}, compiler)
}

// with returns the authorizers, with an authorizer for roles.
func (a *Authorizers) with(roles authorizer.Authorizer) []authorizerunion.NamedAuthorizer {
	var all []authorizerunion.NamedAuthorizer
	for _, named := range a.named {
		if named.Authorizer == nil {
			named.Authorizer = roles
		}
		all = append(all, named)
	}
	return all
}
