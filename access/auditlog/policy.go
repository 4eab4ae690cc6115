package auditlog

import (
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rules is a policy with a floor for deletions and a ceiling for secrets.
type rules struct{ audit.PolicyRuleEvaluator }

func rulesOf(p *auditinternal.Policy) rules { return rules{policy.NewPolicyRuleEvaluator(p)} }

// EvaluatePolicyRule says what is recorded of a request.
func (r rules) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	c := r.PolicyRuleEvaluator.EvaluatePolicyRule(a)
	if deletes(a) {
		// No stage is omitted: the first event is written before the transaction, so a
		// server that is killed after its commit leaves a record of the deletion. A client
		// that is not known deletes nothing.
		if c.OmitStages = nil; a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous {
			c.OmitStages = []auditinternal.Stage{auditinternal.StageRequestReceived}
		}
		if c.Level.Less(auditinternal.LevelMetadata) {
			c.Level = auditinternal.LevelMetadata
		}
	}
	if a.IsResourceRequest() && isSecret(a.GetAPIGroup(), a.GetResource(), a.GetSubresource()) && auditinternal.LevelMetadata.Less(c.Level) {
		c.Level = auditinternal.LevelMetadata
	}
	return c
}

// deletes says whether a request deletes, or overrules what holds a deletion.
func deletes(a authorizer.Attributes) bool {
	switch a.GetVerb() {
	case "delete", "deletecollection":
		return true
	case "create":
		return a.GetAPIGroup() == "lifecycle.exeunt.dev" && a.GetResource() == "finalizerremovals"
	}
	return false
}
