package explain

import (
	"crypto/tls"
	"net/http"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// TestTransportCanBeLookedInto: client-go can unwrap the transport. Otherwise it
// prints a warning to the terminal.
func TestTransportCanBeLookedInto(t *testing.T) {
	below := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "exeunt.example"}}
	config, err := utilnet.TLSClientConfig(&explainer{next: below})
	if err != nil || config == nil || config.ServerName != "exeunt.example" {
		t.Errorf("the settings are %+v, %v", config, err)
	}
}
