package broker

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// BlueprintVersionRef names one version of a blueprint.
type BlueprintVersionRef struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (r BlueprintVersionRef) String() string { return r.Name + "@" + r.Version }

// ProviderKind is the kind of cloud that a blueprint is for, such as "aws". A
// credential must be of the same kind.
type ProviderKind string

// InjectionStrategy says how a bootstrap token reaches the machine.
type InjectionStrategy string

// The injection strategies: a closed set.
const (
	InjectCloudInitUserData InjectionStrategy = "cloud-init-user-data"
	InjectHelmValues        InjectionStrategy = "helm-values"
	InjectProviderSecret    InjectionStrategy = "provider-secret"
)

// InjectionStrategies returns all strategies.
func InjectionStrategies() []InjectionStrategy {
	return []InjectionStrategy{InjectCloudInitUserData, InjectHelmValues, InjectProviderSecret}
}

// DefaultDeadline is the time to become Ready when the blueprint gives none.
const DefaultDeadline = time.Hour

// maxDeadline is the longest deadline that a blueprint may set.
const maxDeadline = 7 * 24 * time.Hour

// BlueprintVersion says how a resource is built. A version never changes: a
// change is another version.
type BlueprintVersion struct {
	Ref BlueprintVersionRef
	// XR is the composite resource, ProviderConfig its access to the cloud.
	XR, ProviderConfig Template
	Schema             ParameterSchema
	Provider           ProviderKind
	Injection          InjectionStrategy
	// Deadline is how long a resource may take to become Ready, up to 7 days.
	// Zero is DefaultDeadline.
	Deadline time.Duration
}

// ObjectType is the kind of an object on the management cluster.
type ObjectType struct {
	APIVersion string `json:"apiVersion"` // "group/version"
	Kind       string `json:"kind"`
}

// Template is an object before the parameters are filled in.
type Template struct {
	ObjectType
	// Spec is a JSON object. Its strings may have placeholders: see Render.
	Spec []byte
}

var (
	validAPIVersion = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/v[a-z0-9]{1,62}$`)
	validKind       = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	validVersion    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.+_-]{0,61}[A-Za-z0-9])?$`)
)

// Validate names every invalid field.
func (b BlueprintVersion) Validate() error {
	var errs FieldErrors
	checkBlueprintRef(&errs, b.Ref)
	b.checkTemplate(&errs, "xr", b.XR)
	b.checkTemplate(&errs, "providerConfig", b.ProviderConfig)
	if !validLabel.MatchString(string(b.Provider)) {
		errs.add("provider", labelRule)
	}
	if !slices.Contains(InjectionStrategies(), b.Injection) {
		errs.add("injection", fmt.Sprintf("must be one of %v", InjectionStrategies()))
	}
	if b.Deadline < 0 || b.Deadline > maxDeadline {
		errs.add("deadline", fmt.Sprintf("must be from 0 to %s", maxDeadline))
	}
	b.Schema.check(&errs)
	return errs.err()
}

func (b BlueprintVersion) checkTemplate(errs *FieldErrors, field string, t Template) {
	if !validAPIVersion.MatchString(t.APIVersion) {
		errs.add(field+".apiVersion", `must be "group/version"`)
	}
	if !validKind.MatchString(t.Kind) {
		errs.add(field+".kind", "must be a kind: a capital letter, then letters and digits")
	}
	if !isJSONObject(t.Spec) {
		errs.add(field+".spec", "must be a JSON object")
		return
	}
	for _, name := range placeholders(t.Spec) {
		if !b.knows(name) {
			errs.add(field+".spec", fmt.Sprintf("${%s} is nothing that can be filled in: want ${parameters.NAME} of a declared parameter, or one of %v", name, variables))
		}
	}
}

func checkBlueprintRef(errs *FieldErrors, ref BlueprintVersionRef) {
	if !validLabel.MatchString(ref.Name) {
		errs.add("blueprint.name", labelRule)
	}
	if !validVersion.MatchString(ref.Version) {
		errs.add("blueprint.version", "must be 1 to 63 letters, digits, '.', '+', '_' or '-', and begin and end with a letter or digit")
	}
}

func (b BlueprintVersion) deadline() time.Duration {
	if b.Deadline == 0 {
		return DefaultDeadline
	}
	return b.Deadline
}
