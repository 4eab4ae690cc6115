package auditlog

import (
	"strings"

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

// deletes reports whether a request deletes, takes a deletion back, or overrules what holds it.
func deletes(a authorizer.Attributes) bool {
	switch a.GetVerb() {
	case "delete", "deletecollection":
		return true
	case "create":
		return a.GetAPIGroup() == "lifecycle.exeunt.dev" && (a.GetResource() == "finalizerremovals" || a.GetResource() == "restores")
	case "update", "patch":
		return a.GetResource() == "namespaces" && a.GetSubresource() == "finalize"
	}
	return false
}

// ByContent returns a sink and a policy for a request that the policy does not record, and that is
// recorded if its content matters for deletions: the API then adds an annotation with
// DeletionPrefix to its event. Nil: the request is recorded, or not, whatever it contains.
func (l *Log) ByContent(a authorizer.Attributes) (audit.Sink, audit.PolicyRuleEvaluator) {
	if verb := a.GetVerb(); verb != "update" && verb != "patch" || l.policy.EvaluatePolicyRule(a).Level != auditinternal.LevelNone {
		return nil, nil
	}
	return annotated{l.backend}, annotated{}
}

// DeletionPrefix is that of annotations of events about deletions.
const DeletionPrefix = "lifecycle.exeunt.dev/"

// annotated passes events on that have an annotation about deletions.
type annotated struct{ sink audit.Sink }

func (s annotated) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		for key := range e.Annotations {
			if strings.HasPrefix(key, DeletionPrefix) {
				return s.sink.ProcessEvents(e)
			}
		}
	}
	return true
}

// EvaluatePolicyRule records the end of a request, when its content is known.
func (annotated) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived, auditinternal.StageResponseStarted}}
}
