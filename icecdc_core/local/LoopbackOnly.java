import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.codelibs.opensearch.runner.OpenSearchRunner;
import org.opensearch.common.settings.Settings;
import org.opensearch.common.util.concurrent.ThreadContext;
import org.opensearch.core.rest.RestStatus;
import org.opensearch.plugins.ActionPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.rest.BytesRestResponse;
import org.opensearch.rest.RestChannel;
import org.opensearch.rest.RestHandler;
import org.opensearch.rest.RestRequest;

/**
 * Starts the embedded server, and refuses requests of web pages to it: a browser reaches loopback for any page that it shows.
 *
 * A request with an Origin comes from a page. A request with another host name comes from a page whose name was changed
 * to resolve to loopback ("DNS rebinding"): the browser then treats the server as the page's own.
 *
 * Janino, which is part of Spark, compiles this class before every start, so it has no lambdas. Each handler is wrapped
 * in a proxy, because one of its parameters has another class in each version.
 */
public class LoopbackOnly extends Plugin implements ActionPlugin {

    private static final Pattern OURS =
        Pattern.compile("(127\\.0\\.0\\.1|localhost|\\[::1\\])(:\\d+)?", Pattern.CASE_INSENSITIVE);

    /** Runs a server with the ingest role, which pipelines need; the runner's own main class has no option for it. */
    public static void main(String[] arguments) throws Exception {
        final OpenSearchRunner runner = new OpenSearchRunner();
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                try {
                    runner.close();
                } catch (Exception e) {
                    // the process ends anyway
                }
            }
        });
        runner.onBuild(new OpenSearchRunner.Builder() {
            public void build(int number, Settings.Builder settings) {
                settings.putList("node.roles", new String[] {"cluster_manager", "data", "ingest"});
            }
        });
        try {
            runner.build(arguments);
            while (!runner.isClosed()) {
                Thread.sleep(5000);
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    public UnaryOperator getRestHandlerWrapper(ThreadContext context) {
        return new UnaryOperator() {
            public Object apply(Object handler) {
                return guarded(handler);
            }
        };
    }

    static Object guarded(final Object handler) {
        return Proxy.newProxyInstance(RestHandler.class.getClassLoader(), new Class[] {RestHandler.class},
            new InvocationHandler() {
                public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
                    String refusal = method.getName().equals("handleRequest") ? refusal((RestRequest) given[0]) : null;
                    if (refusal != null) {
                        ((RestChannel) given[1]).sendResponse(new BytesRestResponse(RestStatus.FORBIDDEN, refusal));
                        return null;
                    }
                    try {
                        return method.invoke(handler, given);
                    } catch (InvocationTargetException e) {
                        throw e.getCause();
                    }
                }
            });
    }

    static String refusal(RestRequest request) {
        if (request.header("Origin") != null) {
            return "refused: a request with an Origin is that of a web page";
        }
        List hosts = request.getAllHeaderValues("Host");
        for (int i = 0; hosts != null && i < hosts.size(); i++) {
            if (!OURS.matcher((String) hosts.get(i)).matches()) {
                return "refused: the Host is not localhost, 127.0.0.1 or [::1]";
            }
        }
        return null;
    }
}
