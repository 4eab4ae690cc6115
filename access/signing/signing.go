// Package signing issues the certificates of approved CertificateSigningRequests of the
// signer kubernetes.io/kube-apiserver-client, and removes old requests. Every replica
// runs it. It does not decide who may approve: access does.
package signing

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// UserKey is the key in a request's spec.extra that names the uid of the User who
	// asked. The server sets it.
	UserKey = "access.exeunt.dev/user-uid"
	// maxLife is how long a certificate is valid, at most and by default.
	maxLife = 365 * 24 * time.Hour
	// sweepEvery is how often old requests are looked for.
	sweepEvery = 10 * time.Minute
)

// Requests is the resource of CertificateSigningRequest.
var Requests = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

var requestKind = schema.GroupVersionKind{Group: certificatesv1.GroupName, Version: "v1", Kind: "CertificateSigningRequest"}

// Signer signs approved requests.
type Signer struct {
	Writer objects.Writer
	// Sign issues a client certificate, as PEM. The uid may be empty.
	Sign func(request *x509.CertificateRequest, uid types.UID, life time.Duration, now time.Time) ([]byte, error)
	// User returns the uid of the User of this name, or "".
	User   func(ctx context.Context, name string) (types.UID, error)
	Logger *slog.Logger
	Now    func() time.Time
}

// Run signs and sweeps until the context ends.
func (s *Signer) Run(ctx context.Context) error {
	return s.Writer.Store.Keep(ctx, s.Logger, "certificate requests could not be handled", func(from int64) error {
		if err := s.Sweep(ctx); err != nil {
			return err
		}
		return s.follow(ctx, from)
	})
}

// follow handles every change of a request. It returns nil when the next sweep is due.
func (s *Signer) follow(ctx context.Context, from int64) error {
	ctx, cancel := context.WithTimeout(ctx, sweepEvery)
	defer cancel()
	err := s.Writer.Store.Follow(ctx, store.WatchRequest{Kind: builtin.SigningRequests, From: from}, func(events []*store.Event) (err error) {
		for _, e := range events {
			if err == nil && e.Type != store.Removed {
				err = s.handle(ctx, e.Object.Body, e.Object.ResourceVersion())
			}
		}
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// Sweep handles all requests, and removes those that are old. One that cannot be handled does not hold up the others.
func (s *Signer) Sweep(ctx context.Context) error {
	listing, err := s.Writer.Store.List(ctx, store.ListRequest{Kind: builtin.SigningRequests})
	if err != nil {
		return err
	}
	var errs []error
	for listing.Next() && ctx.Err() == nil {
		o := listing.Object()
		r, err := decode(o.Body, o.ResourceVersion())
		switch {
		case err != nil:
		case !isOld(r, s.Now()):
			err = s.sign(ctx, r)
		default:
			if err = s.remove(ctx, r); err == nil {
				s.Logger.Info("removed an old certificate request", "name", r.Name, "requestor", r.Spec.Username)
			}
		}
		if err := tolerable(err); err != nil {
			errs = append(errs, fmt.Errorf("certificate request %s: %w", o.Name, err))
		}
	}
	return errors.Join(append(errs, listing.Err())...)
}

// remove deletes a request that has not changed since it was read.
func (s *Signer) remove(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	_, err := s.Writer.Store.Delete(ctx, store.DeleteRequest{
		Key: object.Key{Kind: builtin.SigningRequests, Name: r.Name}, Actor: s.Writer.Actor,
		Options: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion}},
	})
	return err
}

func decode(body []byte, version string) (*certificatesv1.CertificateSigningRequest, error) {
	r := &certificatesv1.CertificateSigningRequest{}
	err := object.DecodeInto(body, version, requestKind, r)
	return r, err
}

func (s *Signer) handle(ctx context.Context, body []byte, version string) error {
	r, err := decode(body, version)
	if err != nil {
		return err
	}
	return tolerable(s.sign(ctx, r))
}

// tolerable drops the errors of a write that another write overtook: that one is handled
// too.
func tolerable(err error) error {
	if object.Is(err, object.Conflict) || object.Is(err, object.NotFound) {
		return nil
	}
	return err
}

// sign issues the certificate of an approved request, or marks the request as failed. Of
// two replicas one writes; the other's write has an old version.
func (s *Signer) sign(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName || len(r.Status.Certificate) > 0 || r.DeletionTimestamp != nil ||
		!has(r, certificatesv1.CertificateApproved) || has(r, certificatesv1.CertificateFailed) {
		return nil
	}
	next := r.DeepCopy()
	certificate, err := s.certificate(ctx, r)
	if err != nil && !errors.As(err, new(invalidError)) {
		return err
	}
	if err != nil {
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
		})
	}
	next.Status.Certificate = certificate
	return s.Writer.UpdateStatus(ctx, Requests, next, r)
}

// invalidError is a fault of the request: it will never be signed.
type invalidError struct{ error }

// certificate decides what the certificate says.
func (s *Signer) certificate(ctx context.Context, r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if err := errors.Join(CheckSubject(r), checkUsages(r.Spec.Usages)); err != nil {
		return nil, invalidError{err}
	}
	request, err := builtin.ParseCertificateRequest(r.Spec.Request)
	if err != nil {
		return nil, invalidError{err}
	}
	name := request.Subject.CommonName
	if name == "" {
		return nil, invalidError{errors.New("the request has no common name, which is the name of the user")}
	}
	uid, err := s.User(ctx, name)
	if err != nil {
		return nil, err
	}
	// The key belongs to the User who asked, and not to a later one of that name.
	if asked := r.Spec.Extra[UserKey]; name == r.Spec.Username && len(asked) == 1 && types.UID(asked[0]) != uid {
		return nil, invalidError{fmt.Errorf("the user %s, who asked for the certificate, was removed", name)}
	}
	life := maxLife
	if seconds := r.Spec.ExpirationSeconds; seconds != nil {
		life = min(life, time.Duration(*seconds)*time.Second)
	}
	return s.Sign(request, uid, life, s.Now())
}

// checkUsages accepts the usages of a client certificate.
func checkUsages(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// CheckSubject refuses a request to the signer of clients for the group of
// administrators, whose rights no role limits.
func CheckSubject(r *certificatesv1.CertificateSigningRequest) error {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := builtin.ParseCertificateRequest(r.Spec.Request)
	if err != nil {
		return err
	}
	if slices.Contains(request.Subject.Organization, "system:masters") {
		return fmt.Errorf("use of %s signer with system:masters group is not allowed", r.Spec.SignerName)
	}
	return nil
}

func has(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
}

// isOld reports whether a request is no longer needed: an hour after it was approved, denied
// or failed, a day after its creation without either. The times are Kubernetes'.
func isOld(r *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	decided := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			// One that waits for its signer stays for a day.
			if c.Type == certificatesv1.CertificateApproved && len(r.Status.Certificate) == 0 {
				continue
			}
			decided = true
			if now.Sub(c.LastUpdateTime.Time) > time.Hour {
				return true
			}
		}
	}
	return !decided && now.Sub(r.CreationTimestamp.Time) > 24*time.Hour
}
