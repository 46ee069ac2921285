import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManifestContent;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.ThreadPools;
import org.apache.spark.sql.MergeIntoWriter;
import org.apache.spark.sql.types.DataType;

/**
 * Loops over Iceberg's files and file tasks, metadata and schemas as texts, and a merge whose snapshot carries
 * properties.
 *
 * <p>Janino compiles it in the session, as it compiles the code that Spark generates: no lambdas and no generics. Texts
 * of many files cross to Python as one text, separated by null characters.
 */
public final class JavaHelper {
  private static final String SEPARATOR = "\0";
  private static final int SHORT = 2500;
  private static final Object[] NOTHING = new Object[0];

  /** A long text stays in the JVM, and Python reads it in parts: see `fetch_text`. */
  private static Object answer(CharSequence text) {
    return text.length() <= SHORT ? (Object) text.toString() : new StringBuilder(text);
  }

  public Object metadata(Table table) {
    for (Object item : table.snapshots()) {
      Snapshot snapshot = (Snapshot) item;
      if (snapshot.manifestListLocation() == null) {
        // Writing its JSON would make it remember manifests that cannot be read.
        snapshot.allManifests(table.io());
      }
    }
    return answer(TableMetadataParser.toJson(((HasTableOperations) table).operations().current()));
  }

  public Object json(DataType type) {
    return answer(type.json());
  }

  public Object json(Schema schema) {
    return answer(SchemaParser.toJson(schema));
  }

  private static Object joined(Iterable texts) {
    return answer(String.join(SEPARATOR, texts));
  }

  /** One fact about each of these files or tasks; most are named by the method of `ContentFile`. */
  public Object texts(List items, String what) throws Exception {
    Method method = null;
    for (Method each : ContentFile.class.getMethods()) {
      method = each.getName().equals(what) ? each : method;
    }
    List texts = new ArrayList(items.size());
    for (Object item : items) {
      texts.add(String.valueOf(method == null ? fact(item, what) : method.invoke(file(item), NOTHING)));
    }
    return joined(texts);
  }

  private static Object fact(Object item, String what) {
    switch (what) {
      case "delete digest":
        return deleteDigest(((FileScanTask) item).deletes());
      case "deleted rows":
        long rows = 0;
        for (Object file : ((FileScanTask) item).deletes()) {
          rows += ((DeleteFile) file).recordCount();
        }
        return Long.valueOf(rows);
      case "data rows":
        return Long.valueOf(item instanceof DeleteFile ? 0 : ((ContentFile) item).recordCount());
      case "address":
        return address((ContentFile) item);
      default:
        throw new IllegalArgumentException(what);
    }
  }

  private static Object file(Object item) {
    return item instanceof FileScanTask ? ((FileScanTask) item).file() : item;
  }

  /** A digest of 128 bits of the set of delete files; null for none. */
  private static Object deleteDigest(List deletes) {
    Set addresses = new TreeSet();
    for (Object file : deletes) {
      addresses.add(address((DeleteFile) file));
    }
    return addresses.isEmpty() ? null : UUID.nameUUIDFromBytes(addresses.toString().getBytes(StandardCharsets.UTF_8));
  }

  /** Several deletion vectors share one Puffin file and differ by their offset in it. */
  private static String address(ContentFile file) {
    return file instanceof DeleteFile ? file.location() + "#" + ((DeleteFile) file).contentOffset() : file.location();
  }

  public List at(List items, String positions) {
    List chosen = new ArrayList();
    for (String position : positions.split(SEPARATOR)) {
      chosen.add(items.get(Integer.parseInt(position)));
    }
    return chosen;
  }

  /**
   * A scan of a snapshot by the schema of today: Iceberg's own would have the names and the partition types of that
   * time.
   */
  public TableScan scan(Table table, long snapshotId) {
    return new TableAt((BaseTable) table, snapshot(table, Long.valueOf(snapshotId))).newScan();
  }

  private static Snapshot snapshot(Table table, Long snapshotId) {
    Snapshot snapshot = snapshotId == null ? null : table.snapshot(snapshotId.longValue());
    if (snapshotId != null && snapshot == null) {
      throw new IllegalArgumentException("Cannot find snapshot with ID " + snapshotId);
    }
    return snapshot;
  }

  private static final class TableAt extends BaseTable {
    private final Snapshot snapshot;

    TableAt(BaseTable table, Snapshot snapshot) {
      super(table.operations(), table.name(), table.reporter());
      this.snapshot = snapshot;
    }

    public Snapshot currentSnapshot() {
      return snapshot;
    }
  }

  /** Plan a scan and return the tasks of its data files, or of those that the manifests want. */
  public static List planned(TableScan scan, Manifests manifests) throws Exception {
    CloseableIterable planned = scan.planFiles();
    try {
      List tasks = new ArrayList();
      for (Object item : planned) {
        if (manifests == null || manifests.want((ContentFile) ((FileScanTask) item).file())) {
          tasks.add(item);
        }
      }
      return tasks;
    } finally {
      planned.close();
    }
  }

  /** The live files in which two snapshots may differ, of the older, of the newer; whether the older has deletes. */
  public List difference(Table table, Long older, long newer, int slots) throws Exception {
    Manifests data = new Manifests(table, older, newer, false, new HashSet(), slots);
    Manifests deletes = new Manifests(table, older, newer, true, new HashSet(), slots);
    List sides = new ArrayList();
    for (int side = 0; side < 2; side++) {
      sides.add(data.files(side));
      ((List) sides.get(side)).addAll(deletes.files(side));
    }
    sides.add(Boolean.valueOf(older != null && !snapshot(table, older).deleteManifests(table.io()).isEmpty()));
    return sides;
  }

  /**
   * The tasks of two snapshots whose rows may differ: of the older one, then of the newer one.
   *
   * <p>These are the data files that one side alone has, and those that a delete file of one side alone applies to. If
   * it names none, it may apply to any; then its side is planned.
   */
  public List changed(Table table, Long older, long newer, int slots) throws Exception {
    Manifests deletes = new Manifests(table, older, newer, true, new HashSet(), slots);
    Set hit = new HashSet();
    for (int side = 0; side < 2; side++) {
      Set anywhere = new HashSet();
      for (Object file : deletes.files(side)) {
        String target = ContentFileUtil.referencedDataFileLocation((DeleteFile) file);
        (target == null ? anywhere : hit).add(target == null ? address((ContentFile) file) : target);
      }
      TableScan scan = anywhere.isEmpty() ? null : scan(table, deletes.snapshots[side].snapshotId());
      for (Object item : scan == null ? new ArrayList() : planned(scan, null)) {
        for (Object file : ((FileScanTask) item).deletes()) {
          if (anywhere.contains(address((ContentFile) file))) {
            hit.add(((FileScanTask) item).file().location());
          }
        }
      }
    }
    return new Manifests(table, older, newer, false, hit, slots).tasks();
  }

  /**
   * The manifests of two snapshots, for data files or for delete files, and in which live files they may differ.
   *
   * <p>Manifests that both sides list are not read. Files of the others are spread over slots by their names. A slot
   * adds up digests of what the newer side says of its files, and subtracts those of the older side, so that files of
   * both sides cancel out, and memory does not grow with their number. Others cancel out in one of 2^100 cases, and no
   * writer can look for one: the digests have a random key. Equal files that share a slot with others are returned, too.
   */
  static final class Manifests {
    private static final List FEW_COLUMNS =
        Arrays.asList(
            new Object[] {"file_path", "content_offset", "file_size_in_bytes", "record_count", "first_row_id"});

    final Snapshot[] snapshots;
    private final Table table;
    private final Set hit;
    private final int slots;
    private final boolean hasRowIds; // on both sides; a table gets them when it becomes format version 3
    private final Map[] own = {new LinkedHashMap(), new LinkedHashMap()};
    private final List[] shared = {new ArrayList(), new ArrayList()};
    private final String key = UUID.randomUUID().toString();
    private AtomicLongArray sums;
    private BitSet different;

    Manifests(Table table, Long older, long newer, boolean ofDeletes, Set hit, int slots) throws Exception {
      this.table = table;
      this.snapshots = new Snapshot[] {snapshot(table, older), snapshot(table, Long.valueOf(newer))};
      this.hit = hit;
      this.slots = slots;
      this.hasRowIds = older != null && snapshots[0].firstRowId() != null;
      for (int side = older == null ? 1 : 0; side < 2; side++) {
        Snapshot at = snapshots[side];
        for (Object item : ofDeletes ? at.deleteManifests(table.io()) : at.dataManifests(table.io())) {
          own[side].put(((ManifestFile) item).path(), item);
        }
      }
      for (Object path : new ArrayList(own[0].keySet())) {
        Object other = own[1].get(path);
        if (other != null && facts((ManifestFile) own[0].get(path)).equals(facts((ManifestFile) other))) {
          shared[0].add(own[0].remove(path));
          shared[1].add(own[1].remove(path));
        }
      }
      if (!own[0].isEmpty() && !own[1].isEmpty()) {
        compare();
      }
    }

    /** Finds the slots that differ, and forgets manifests without a file in them. */
    private void compare() throws Exception {
      sums = new AtomicLongArray(2 * slots);
      List[] seen = {read(own[0].values(), -1), read(own[1].values(), 1)};
      different = new BitSet();
      for (int i = 0; i < 2 * slots; i++) {
        if (sums.get(i) != 0) {
          different.set(i / 2);
        }
      }
      for (Object location : hit) {
        different.set(slot((String) location));
      }
      for (int side = 0; side < 2; side++) {
        Iterator manifests = own[side].values().iterator();
        for (Object seenSlots : seen[side]) {
          manifests.next();
          if (!((BitSet) seenSlots).intersects(different)) {
            manifests.remove();
          }
        }
      }
    }

    /** What a list says about a manifest that decides how its entries are read. */
    private List facts(ManifestFile manifest) {
      boolean isRead = manifest.hasAddedFiles() || manifest.hasExistingFiles();
      Object rowId = hasRowIds ? manifest.firstRowId() : null;
      return Arrays.asList(new Object[] {
            Long.valueOf(manifest.sequenceNumber()), Integer.valueOf(manifest.partitionSpecId()), Boolean.valueOf(isRead), rowId
          });
    }

    private int slot(String address) {
      return address.hashCode() & (slots - 1);
    }

    private int add(ContentFile file, int sign, MessageDigest digest) {
      Object rowId = hasRowIds ? file.firstRowId() : null;
      String sizes = file.fileSizeInBytes() + " " + file.recordCount() + " " + file.dataSequenceNumber() + " " + rowId;
      byte[] facts = (key + sizes + " " + address(file)).getBytes(StandardCharsets.UTF_8);
      ByteBuffer sum = ByteBuffer.wrap(digest.digest(facts));
      int slot = slot(address(file));
      sums.addAndGet(2 * slot, sign * sum.getLong());
      sums.addAndGet(2 * slot + 1, sign * sum.getLong());
      return slot;
    }

    boolean want(ContentFile file) {
      boolean isShared = !own[0].containsKey(file.manifestLocation()) && !own[1].containsKey(file.manifestLocation());
      return isShared ? hit.contains(file.location()) : different == null || different.get(slot(address(file)));
    }

    List files(int side) throws Exception {
      List files = new ArrayList();
      for (Object several : read(own[side].values(), 0)) {
        files.addAll((List) several);
      }
      return files;
    }

    List tasks() throws Exception {
      List found = hit.isEmpty() ? new ArrayList() : read(shared[1], 0);
      List sides = new ArrayList();
      for (int side = 0; side < 2; side++) {
        List manifests = new ArrayList(own[side].values());
        for (int i = 0; i < found.size(); i++) {
          if (!((List) found.get(i)).isEmpty()) {
            manifests.add(shared[side].get(i));
          }
        }
        Snapshot part = manifests.isEmpty() ? null : withManifests(snapshots[side], manifests);
        sides.add(part == null ? manifests : planned(new TableAt((BaseTable) table, part).newScan(), this));
      }
      return sides;
    }

    /** For each manifest the live files that are wanted; with a sign, the slots that it adds all to. */
    private List read(Iterable manifests, final int sign) throws Exception {
      List readings = new ArrayList();
      for (Object item : manifests) {
        final ManifestFile manifest = (ManifestFile) item;
        readings.add(
            new Callable() {
              public Object call() throws Exception {
                return read(manifest, sign);
              }
            });
      }
      List found = new ArrayList();
      for (Object each : ThreadPools.getWorkerPool().invokeAll(readings)) {
        found.add(((Future) each).get());
      }
      return found;
    }

    private Object read(ManifestFile manifest, int sign) throws Exception {
      List files = new ArrayList();
      BitSet seenSlots = new BitSet();
      MessageDigest digest = MessageDigest.getInstance("MD5");
      boolean isOfDeletes = manifest.content() == ManifestContent.DELETES;
      ManifestReader reader =
          isOfDeletes
              ? ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())
              : ManifestFiles.read(manifest, table.io(), table.specs());
      boolean isRead = manifest.hasAddedFiles() || manifest.hasExistingFiles(); // as Iceberg's own scans do
      try {
        for (Object item : !isRead ? files : isOfDeletes && sign == 0 ? reader : reader.select(FEW_COLUMNS)) {
          ContentFile file = (ContentFile) item;
          if (sign != 0) {
            seenSlots.set(add(file, sign, digest));
          } else if (want(file)) {
            files.add(file);
          }
        }
        return sign == 0 ? files : seenSlots;
      } finally {
        reader.close();
      }
    }
  }

  private static Snapshot withManifests(final Snapshot snapshot, final List manifests) {
    InvocationHandler handler =
        new InvocationHandler() {
          public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
            return method.getName().equals("dataManifests") ? manifests : method.invoke(snapshot, given);
          }
        };
    Class[] types = {Snapshot.class};
    return (Snapshot) Proxy.newProxyInstance(Snapshot.class.getClassLoader(), types, handler);
  }

  /** Spark 4.1 finds the table by the key, too. */
  public void stage(Table table, String key, List tasks) {
    ScanTaskSetManager.get().stageTasks(table, key, tasks);
    SparkTableCache.get().add(key, table);
  }

  public void release(Table table, String key) {
    ScanTaskSetManager.get().removeTasks(table, key);
    SparkTableCache.get().remove(key);
  }

  /** MERGE has no write options, so Iceberg takes the properties from the thread that runs it. */
  public void merge(final MergeIntoWriter writer, Map properties) throws Exception {
    CommitMetadata.withCommitProperties(
        properties,
        new Callable() {
          public Object call() {
            writer.merge();
            return null;
          }
        },
        RuntimeException.class);
  }
}
