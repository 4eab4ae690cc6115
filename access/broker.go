package access

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// brokerName is the user that the broker acts as.
const brokerName = "system:exeunt:broker"

// brokerRights lets the broker write what Blueprints ask for, which no role can name in
// advance: composite resources and ProviderConfigs, of custom kinds, and the Secrets of
// bootstrap tokens in the namespaces of projects. It excludes the groups of Kubernetes and
// of this server, so that a Blueprint cannot make the broker create a Pod, a role or a
// User, and the Secrets of the system's namespaces. What else the broker may do is in its
// ClusterRole of the same name.
func brokerRights(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil || a.GetUser().GetName() != brokerName || !a.IsResourceRequest() || a.GetSubresource() != "" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	group, namespace := a.GetAPIGroup(), a.GetNamespace()
	var verbs []string
	switch {
	case strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".exeunt.dev"):
		verbs = []string{"create", "delete", "get", "list", "patch", "watch"}
	case group == "" && a.GetResource() == "secrets" && namespace != "" && !strings.HasPrefix(namespace, "kube-"):
		verbs = []string{"create", "delete", "get", "patch"}
	}
	if slices.Contains(verbs, a.GetVerb()) {
		return authorizer.DecisionAllow, "the broker writes what Blueprints ask for", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
