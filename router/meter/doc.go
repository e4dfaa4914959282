// Package meter is the router's metrics: their names, their units, and the closed sets of their labels.
package meter
