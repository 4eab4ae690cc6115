package admission

import (
	"net/http"

	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/internal/inflight"
)

// maxAnswer limits the answer of a webhook, in bytes, in addition to four times its
// request: a conversion may make objects larger.
const maxAnswer = 16 << 20

// limitAnswers limits what the clients of webhooks read. The library reads an answer to
// its end, into memory.
func limitAnswers(next webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	limited := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c = rest.CopyConfig(c)
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return inflight.Answers{RoundTripper: rt, Most: maxAnswer, Times: 4}
			})
		}
		return c, err
	}
	return &webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return limited(next.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return limited(next.ClientConfigForService(name, namespace, port))
		},
	}
}
