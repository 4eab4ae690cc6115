package exeunttest_test

import (
	"net/http"
	"testing"

	"github.com/exeunt/exeunt/exeunttest"
)

// With testing.T: a server for each test, with what all tests need.
func Example() {
	server := exeunttest.Prepared(func(t exeunttest.TB, s *exeunttest.Server) {
		// Install CustomResourceDefinitions and webhooks, with a client for s.Kubeconfig.
	})
	_ = func(t *testing.T) {
		t.Parallel()
		s := server(t)
		// config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		// ... start the controller, delete an owner ...
		s.WaitIdle()
		// ... nothing is left.
	}
}

// With Ginkgo:
//
//	var _ = Describe("Shop", func() {
//		It("leaves nothing behind", func() {
//			s := exeunttest.Start(GinkgoT())
//			...
//			s.WaitIdle()
//		})
//	})
func Example_ginkgo() {}

// In the suite that kubebuilder scaffolds, BeforeSuite starts envtest.Environment:
//
//	server := exeunttest.Start(GinkgoT())
//	cfg, err = clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
//	Expect(err).NotTo(HaveOccurred())
//	testEnv = &envtest.Environment{
//		Config: cfg, UseExistingCluster: ptr.To(true),
//		CRDDirectoryPaths: []string{filepath.Join("..", "..", "config", "crd", "bases")},
//	}
//	_, err = testEnv.Start()
func Example_kubebuilder() {}

// Without a client library:
func ExampleServer_Client() {
	_ = func(t *testing.T) {
		s := exeunttest.Start(t)
		answer, err := s.Client().Get(s.Host + "/api/v1/namespaces/default")
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(err, answer)
		}
	}
}
