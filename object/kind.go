package object

// Storage names (Key.Kind) of the kinds that several packages treat specially.
// SQL statements and triggers name some of them too.
const (
	Namespaces           = "namespaces"
	Definitions          = "customresourcedefinitions.apiextensions.k8s.io"
	Events               = "events" // of both API groups
	Secrets              = "secrets"
	Pods                 = "pods"
	ServiceAccounts      = "serviceaccounts"
	SigningRequests      = "certificatesigningrequests.certificates.k8s.io"
	ConfigMaps           = "configmaps"
	ProvisionedResources = "provisionedresources.provisioning.exeunt.dev"
	NodePorts            = "nodeports.networking.exeunt.dev"
	APIServices          = "apiservices.apiregistration.k8s.io"
)

// Every namespace has these two objects: the server creates them.
const (
	DefaultAccount = "default"          // a ServiceAccount
	RootCA         = "kube-root-ca.crt" // a ConfigMap
)
