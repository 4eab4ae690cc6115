package cache

import (
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//go:embed registrycache.yaml
var definition []byte

// spec is a RegistryCache as the client of its upstream needs it.
type spec struct {
	name, version string // version differs for different specs
	base          *url.URL
	secret        struct{ Namespace, Name string }
	roots         *x509.CertPool // nil: those of the system
	fresh         time.Duration
	shadowed      bool
}

// parse reads a RegistryCache. Its schema has checked it.
func parse(body []byte) (s spec, err error) {
	var o struct {
		Metadata struct {
			Name, UID  string
			Generation json.Number
		}
		Spec struct {
			Upstream    string
			Credentials struct{ Namespace, Name string }
			CABundle    []byte
			Revalidate  int64 `json:"revalidateAfterSeconds"`
			Pushes      string
		}
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return s, err
	}
	s = spec{
		name: o.Metadata.Name, version: o.Metadata.UID + "/" + string(o.Metadata.Generation), secret: o.Spec.Credentials,
		fresh: time.Duration(o.Spec.Revalidate) * time.Second, shadowed: o.Spec.Pushes == "Shadow",
	}
	if len(o.Spec.CABundle) > 0 {
		s.roots = x509.NewCertPool()
		s.roots.AppendCertsFromPEM(o.Spec.CABundle) // if none is there, no upstream is trusted
	}
	s.base, err = url.Parse(strings.TrimSuffix(o.Spec.Upstream, "/"))
	return s, err
}

func validate(obj runtime.Object) field.ErrorList {
	body, err := json.Marshal(obj)
	if err == nil {
		_, err = parse(body)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
